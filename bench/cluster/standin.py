"""TEMPORARY stand-in for stoker.ray.RayLoader."""
import threading, time
from collections import deque
import ray, stoker

@ray.remote(num_cpus=1, max_concurrency=2, max_restarts=0)
class Worker:
    def __init__(self, recipe, rank, world):
        self.l = stoker.Loader(recipe, rank=rank, world_size=world)
    def ready(self): return True
    def make(self):
        b = next(self.l)
        out = {k: v for k, v in b.numpy().items()}
        return {"a": out, "rows": b.samples, "nbytes": b.nbytes}

class B:
    def __init__(self, seq, d): self.sequence=seq; self.samples=d["rows"]; self.nbytes=d["nbytes"]; self.a=d["a"]
    def numpy(self): return self.a

class RayLoader:
    def __init__(self, recipe, rank=0, world_size=1, placement=None, selectors=None, depth=2, flight=3_000_000):
        k=len(selectors); self.k=k; self.rank=rank; self.W=world_size; self.flight=flight
        self.ws=[Worker.options(label_selector=s).remote(recipe, rank+world_size*j, world_size*k) for j,s in enumerate(selectors)]
        ray.get([w.ready.remote() for w in self.ws])
        self.i=0; self.depth=depth
        self.q=deque(); self.issued=0
        for _ in range(depth*k): self._issue()
        self.pulled=set()
    def _issue(self):
        self.q.append(self.ws[self.issued%self.k].make.remote()); self.issued+=1
    def __enter__(self): return self
    def __exit__(self,*a):
        for w in self.ws: ray.kill(w)
        time.sleep(1)
    def __iter__(self): return self
    def __next__(self):
        ref=self.q[0]
        while True:
            ready,_=ray.wait(list(self.q),num_returns=1,timeout=0.05,fetch_local=True) if False else ray.wait(list(self.q),num_returns=len(self.q),timeout=0,fetch_local=True)
            r,_=ray.wait([ref],timeout=0.02,fetch_local=True)
            if r: break
        self.q.popleft(); d=ray.get(ref); self._issue()
        b=B(self.rank+self.W*self.i,d); self.i+=1
        return b
    def report(self): return "stand-in"
