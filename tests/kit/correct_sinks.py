"""Correct sinks of different design as subjects: a kit that calls one of them wrong is wrong itself."""

from __future__ import annotations

from torchlens_conformance.kit.subject import Subject

from .correct import binary, files, services

CORRECT: tuple[Subject, ...] = (
    Subject(name="csv", open=files.CsvSink, read=files.read_csv),
    Subject(name="base64-lines", open=files.Base64Sink, read=files.read_base64),
    Subject(name="json-array", open=files.JsonArraySink, read=files.read_json_array),
    Subject(name="file-per-point", open=files.FilePerPointSink, read=files.read_file_per_point),
    Subject(name="sharded-by-tag", open=files.ShardedSink, read=files.read_numbered),
    Subject(name="two-files", open=files.TwoFilesSink, read=files.read_numbered),
    Subject(name="rotated", open=files.RotatedSink, read=files.read_numbered),
    Subject(name="mirrored", open=files.MirroredSink, read=files.read_mirrored),
    Subject(name="latching", open=files.LatchingSink, read=files.read_log),
    Subject(name="reopening", open=files.ReopeningSink, read=files.read_reopened),
    Subject(name="scalars-only", open=files.ScalarsOnlySink, read=files.read_log),
    Subject(name="picky-tags", open=files.PickyTagsSink, read=files.read_log),
    Subject(name="strict-steps", open=files.StrictStepsSink, read=files.read_log),
    Subject(name="own-refusals", open=files.OwnRefusalsSink, read=files.read_log),
    Subject(name="checksummed-frames", open=binary.ChecksummedSink, read=binary.read_checksummed),
    Subject(name="pickle-frames", open=binary.PickleSink, read=binary.read_pickles),
    Subject(name="deflate-stream", open=binary.DeflateSink, read=binary.read_deflated),
    Subject(name="gzip-members", open=binary.GzipSink, read=binary.read_gzip),
    Subject(name="tar", open=binary.TarSink, read=binary.read_tar),
    Subject(name="zip-segments", open=binary.ZipSegmentsSink, read=binary.read_zip_segments),
    Subject(name="indexed", open=binary.IndexedSink, read=binary.read_indexed),
    Subject(name="memory-mapped", open=binary.MappedSink, read=binary.read_mapped),
    Subject(name="columns", open=binary.ColumnsSink, read=binary.read_columns),
    Subject(name="sqlite", open=services.SqliteSink, read=services.read_sqlite),
    Subject(name="sqlite-write-ahead", open=services.WriteAheadSink, read=services.read_sqlite),
    Subject(name="writer-thread", open=services.ThreadedSink, read=files.read_log),
    Subject(name="writer-process", open=services.ProcessSink, read=files.read_log),
)
"""Every correct sink, each with its reader."""
