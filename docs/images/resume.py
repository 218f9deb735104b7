"""Draws docs/images/resume.svg from a database in which a run was killed and resumed.

python3 resume.py ckpt.db AGENT > resume.svg

The picture in the documents is of this run: the program of QUICKSTART.md with pauses in
its steps, killed with SIGKILL after step 6 and started again.
"""

import sqlite3
import sys
from datetime import datetime

WIDTH, LEFT, RIGHT = 860, 130, 20
FOLD = 56  # how wide a pause is in which nobody runs the agent

database, agent = sys.argv[1:]
db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)


def at(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


steps = [(at(a), at(b)) for a, b in db.execute("SELECT started_at, ended_at FROM audit_steps WHERE agent = ? ORDER BY started_at", (agent,))]
saves = [at(a) for (a,) in db.execute("SELECT created_at FROM audit_checkpoints WHERE agent = ? ORDER BY seq", (agent,))]
log = db.execute("SELECT at, action FROM audit_log WHERE agent = ? AND action IN ('resume', 'interrupt_run', 'end_run') ORDER BY n", (agent,))
marks = [(at(a), what) for a, what in log]
claims = [t for t, what in marks if what == "resume"]
noticed = next(t for t, what in marks if what == "interrupt_run")
end = next(t for t, what in marks if what == "end_run")
died = max(t for t in saves if t < noticed)

spans = [(claims[0], noticed), (claims[1], end)]
scale = (WIDTH - LEFT - RIGHT - FOLD) / sum(b - a for a, b in spans)


def x(t):
    left = LEFT
    for i, (a, b) in enumerate(spans):
        if t <= b:
            return round(left + (max(t, a) - a) * scale, 1)
        left += (b - a) * scale + (FOLD if i == 0 else 0)
    return round(left, 1)


out = []


def put(text):
    out.append(text)


put(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 218" role="img" aria-labelledby="t d">')
put('<title id="t">An agent is killed and goes on where it was</title>')
put(f'<desc id="d">Ten steps of one run. The agent is killed after step {sum(b <= noticed for _, b in steps)}. A second process resumes the run and does the others. No step is done twice.</desc>')
put("""<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .dim { fill: #59636e } .step { fill: #0969da } .save { fill: #1a7f37 }
.dead { fill: #cf222e; stroke: #cf222e } .line { stroke: #d1d9e0 } .run { fill: #ddf4ff } .back { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .dim { fill: #9198a1 } .step { fill: #4493f8 } .save { fill: #3fb950 }
.dead { fill: #f85149; stroke: #f85149 } .line { stroke: #3d444d } .run { fill: #121d2f } .back { fill: #0d1117 } }
</style>""")
put(f'<rect class="back" width="{WIDTH}" height="218"/>')
for y, name in ((58, "process"), (98, "steps"), (138, "checkpoints")):
    put(f'<text x="16" y="{y + 5}">{name}</text><line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
for i, (a, b) in enumerate(((claims[0], died), (claims[1], end))):
    put(f'<rect class="run" x="{x(a)}" y="44" width="{round(x(b) - x(a), 1)}" height="28" rx="4"/>')
    put(f'<text class="dim" x="{x(a) + 8}" y="63">{"first" if i == 0 else "second"} process, epoch {i + 1}</text>')
for n, (a, b) in enumerate(steps, 1):
    put(f'<rect class="step" x="{x(a)}" y="89" width="{max(round(x(b) - x(a), 1), 2)}" height="18" rx="2"/>')
for t in saves:
    put(f'<circle class="save" cx="{x(t)}" cy="138" r="5"/>')
put(f'<path class="dead" stroke-width="3" d="M{x(died) + 6} 50l16 16m0 -16l-16 16"/>')
put(f'<text class="dead" stroke="none" x="{x(died) - 20}" y="30">kill -9</text>')
put(f'<line class="line" stroke-dasharray="4 3" x1="{x(died)}" x2="{x(died)}" y1="138" y2="176"/>')
put(f'<line class="line" stroke-dasharray="4 3" x1="{x(died)}" x2="{x(claims[1])}" y1="176" y2="176"/>')
put(f'<line class="line" stroke-dasharray="4 3" x1="{x(claims[1])}" x2="{x(claims[1])}" y1="72" y2="176"/>')
put(f'<text x="{LEFT}" y="196"><tspan class="save">●</tspan> {len(saves)} checkpoints, each on disk before it was acknowledged</text>')
put(f'<text x="{WIDTH - RIGHT}" y="196" text-anchor="end">resume: load checkpoint {sum(t < noticed for t in saves)}, go on</text>')
put("</svg>")
print("\n".join(out))
