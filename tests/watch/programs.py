"""Programs that run in processes of their own: process groups, kills, and fresh imports."""

DATA_PARALLEL = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
import torchlens_conformance.trackers as trk

rank, world, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=world)
torch.manual_seed(0)
inner = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
model = nn.parallel.DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sink = trk.MemorySink()
held = []
ops = trk.MemorySink()
ops_watch = trk.watch(model, ops, signals=("activations",), grain="op", allow_forward_wrap=True, every=1, name="ops",
                      select=trk.func("relu"), inputs=torch.ones(2, 4))
with ops_watch, trk.watch(model, sink, optimizer=optimizer, every=1, signals=("gradients", "activations"),
                          select=("0", "2"), inputs=torch.ones(2, 4)) as watch:
    for n in range(3):
        with watch.step(n), ops_watch.step(n):
            optimizer.zero_grad()
            model(torch.full((2, 4), float(rank + n))).square().mean().backward()
            held.append(float(inner[0].weight.grad.double().norm()))
            optimizer.step()
report = watch.close()
counts = {p.step: p.value for p in ops.scalars if p.tag == "activations/ops/count/relu_1_2"}
rows = {p.step: p.value for p in sink.scalars if p.tag == "gradients/norm/0.weight"}
print(json.dumps({"rank": rank, "rows": rows, "held": held, "points": len(sink.points), "notes": report.notes,
                  "disabled": report.disabled_by, "hooks": len(optimizer._optimizer_step_pre_hooks),
                  "ops": len(ops.points), "counts": counts, "wrapped": "forward" in vars(inner),
                  "ops_disabled": ops_watch.close().disabled_by}), flush=True)
# Freeing the model may deadlock in torch: its last owner waits for gloo's thread with the interpreter's lock held.
os._exit(0)
"""

FULLY_SHARDED = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
import torchlens_conformance.trackers as trk

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}/meet", rank=0, world_size=1)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
fully_shard(model, mesh=mesh)
try:
    trk.watch(model, trk.MemorySink())
except trk.Refusal as refusal:
    print(json.dumps({"code": refusal.code, "sites": refusal.fields["sites"]}))
dist.destroy_process_group()
"""

SHOWN_IMPORTS = """
import json, sys
import torchlens_conformance.trackers as trk
heavy = ("torch", "numpy", "numba", "tensorboard", "wandb", "clearml")
before = [name for name in heavy if name in sys.modules]
names = dir(trk)
trk.JSONLSink, trk.MemorySink, trk.ScalarPoint, trk.WANDB_SAFE_DESCRIPTOR, trk.WatchSettings, trk.CloseReport
after = [name for name in heavy if name in sys.modules]
print(json.dumps({"before": before, "after": after, "names": names}))
"""
