package apitest

import (
	"net/http"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// row is one request of a call and the answer to each caller. Its path, body
// and headers contain the names of things in braces.
type row struct {
	name        string // added to the name of the call if the call has several rows
	method      string
	path        string // as in the table of routes
	query       string
	contentType string
	header      map[string]string
	body        string

	owner    int // for the owner, and for an administrator who names the owner
	stranger int // for a user who has nothing and requests the owner's things
	missing  int // for the owner who requests something that does not exist; 0 means as stranger
	admin    int // for an administrator who names no owner; 0 means as stranger

	run      string // the owner's run for {run}, if it is not "work"
	byID     bool   // it uses an id that only one owner has: a neighbor gets the stranger's answer
	everyone bool   // the answer does not depend on the caller: each caller gets it
	warm     bool   // the owner's newest state is in the store's memory
	shows    bool   // the owner's answer contains what he has saved
	star     bool   // an administrator may request the things of all owners
}

const (
	agents  = "/v1/agents/{agent}"
	saves   = agents + "/checkpoints"
	oneSave = saves + "/{id}"
	byID    = "/v1/checkpoints/{id}"
	oneRun  = agents + "/runs/{run}"
	graph   = agents + "/graph"

	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	change     = "application/vnd.ckptsidecar.delta"
	framed     = "application/vnd.ckptsidecar.graph"
	lines      = "application/x-ndjson"
	contents   = "application/vnd.ckptsidecar.contents"
	emptySum   = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

	putFrame = `{"thread":"{thread}","checkpoint":{"v":4,"id":"9","channel_versions":{"a":1}},"metadata":{"run_id":"r"},"values":[{"channel":"a","type":"json","length":3}]}` + "\n" + `"x"`
)

// table has a row for each form of each call.
var table = []row{
	{name: "envelope", method: "POST", path: saves, contentType: ckpt.ContentTypeJSON, body: `{"kind":"routine","run":"{run}","state":{"n":1}}`, owner: 201, stranger: 201},
	{name: "envelope with a parent", method: "POST", path: saves, contentType: ckpt.ContentTypeJSON, body: `{"kind":"routine","state":1,"parent":"{known}"}`, owner: 201, stranger: 404, byID: true},
	{name: "text", method: "POST", path: saves, query: "kind=routine&run={run}", contentType: "text/plain", body: "plain", owner: 201, stranger: 201},
	{name: "bytes", method: "POST", path: saves, query: "kind=routine&run={run}", contentType: "application/octet-stream", body: "\x00\xff", owner: 201, stranger: 201},
	{name: "no content type", method: "POST", path: saves, query: "kind=routine&run={run}", body: "\x00", owner: 201, stranger: 201},
	{name: "merge patch", method: "POST", path: saves, query: "kind=routine&base={known}", contentType: mergePatch, body: `{"more":true}`, owner: 201, stranger: 409, byID: true},
	{name: "JSON patch", method: "POST", path: saves, query: "kind=routine&base={known}", contentType: jsonPatch, body: `[{"op":"add","path":"/x","value":1}]`, owner: 201, stranger: 409, byID: true},
	{name: "change of a base on disk", method: "POST", path: saves, query: "kind=routine&base={known}", contentType: change, header: map[string]string{"Ckpt-Base-Sha256": "{sum}"},
		body: "[[0,{size}]]\n", owner: 201, stranger: 409, byID: true},
	{name: "change of a base in memory", method: "POST", path: saves, query: "kind=routine&run={run}&base={warm}", contentType: change, header: map[string]string{"Ckpt-Base-Sha256": "{warmsum}"},
		body: "[[0,{warmsize}]]\n", owner: 201, stranger: 409, byID: true, warm: true},
	{name: "JSON", method: "PUT", path: oneSave, query: "kind=routine&run={run}", contentType: ckpt.ContentTypeJSON, body: `{"n":2}`, owner: 201, stranger: 201},
	{name: "text", method: "PUT", path: oneSave, query: "kind=routine", contentType: "text/plain", body: "plain", owner: 201, stranger: 201},
	{name: "with a parent", method: "PUT", path: oneSave, query: "kind=routine&parent={known}", contentType: "text/plain", body: "plain", owner: 201, stranger: 404, byID: true},
	{name: "change", method: "PUT", path: oneSave, query: "kind=routine&base={known}", contentType: change, header: map[string]string{"Ckpt-Base-Sha256": "{sum}"},
		body: "[[0,{size}]]\n", owner: 201, stranger: 409, byID: true},
	{method: "GET", path: saves, owner: 200, stranger: 404, shows: true},
	{name: "filtered", method: "GET", path: saves, query: "run={run}&kind=recovery&label=of%3D{owner}", owner: 200, stranger: 404},
	{method: "GET", path: saves + "/latest", owner: 200, stranger: 404, shows: true},
	{name: "without its state", method: "GET", path: saves + "/latest", query: "state=false&clean=true", owner: 200, stranger: 404},
	{method: "GET", path: byID, owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{name: "without its state", method: "GET", path: byID, query: "state=false", owner: 200, stranger: 404, byID: true, admin: 200},
	{method: "GET", path: byID + "/state", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{name: "pin", method: "PATCH", path: byID, contentType: ckpt.ContentTypeJSON, body: `{"pinned":true}`, owner: 200, stranger: 404, byID: true, admin: 200},
	{name: "labels", method: "PATCH", path: byID, contentType: ckpt.ContentTypeJSON, body: `{"labels":{"a":"b"}}`, owner: 200, stranger: 404, byID: true, admin: 200},
	{method: "DELETE", path: byID, owner: 200, stranger: 404, byID: true, admin: 200},
	{name: "from another's", method: "GET", path: "/v1/checkpoints/{a}/diff/{b}", owner: 200, stranger: 404, byID: true, admin: 200},
	{name: "newest", method: "POST", path: agents + "/restore", contentType: ckpt.ContentTypeJSON, body: `{}`, owner: 200, stranger: 404, shows: true},
	{name: "by its id", method: "POST", path: agents + "/restore", contentType: ckpt.ContentTypeJSON, body: `{"checkpoint":"{known}","reason":"why"}`, owner: 200, stranger: 404, byID: true, shows: true},

	{method: "GET", path: "/v1/agents", owner: 200, stranger: 200, missing: 200, star: true},
	{method: "DELETE", path: agents, owner: 200, stranger: 404},
	{method: "GET", path: agents + "/policy", owner: 200, stranger: 404},
	{method: "PUT", path: agents + "/policy", contentType: ckpt.ContentTypeJSON, body: `{"routine_keep":1}`, owner: 200, stranger: 200},
	{name: "with its layers", method: "GET", path: agents + "/policy", query: "layers=true", owner: 200, stranger: 404},
	{method: "GET", path: "/v1/policy", owner: 200, stranger: 200, missing: 200},
	{method: "PUT", path: "/v1/policy", contentType: ckpt.ContentTypeJSON, body: `{"routine_keep":2}`, owner: 200, stranger: 200, missing: 200},
	{method: "GET", path: agents + "/export", owner: 200, stranger: 404, shows: true},
	{method: "GET", path: "/v1/export", query: "agents={agent}", owner: 200, stranger: 404, shows: true},
	{method: "POST", path: "/v1/import", query: "agent=copy", contentType: lines, body: "{export}", owner: 200, stranger: 200, missing: 200, admin: 200},
	{name: "one agent", method: "POST", path: "/v1/prune", contentType: ckpt.ContentTypeJSON, body: `{"agent":"{agent}"}`, owner: 200, stranger: 404},
	{name: "all", method: "POST", path: "/v1/prune", contentType: ckpt.ContentTypeJSON, body: `{}`, owner: 200, stranger: 200, missing: 200, star: true},
	{name: "dry", method: "POST", path: "/v1/prune", contentType: ckpt.ContentTypeJSON, body: `{"dry_run":true}`, owner: 200, stranger: 200, missing: 200, star: true},

	{method: "POST", path: agents + "/runs", contentType: ckpt.ContentTypeJSON, body: `{"run":"new","goal":"g"}`, owner: 201, stranger: 201},
	{name: "a fork", method: "POST", path: agents + "/runs", contentType: ckpt.ContentTypeJSON, body: `{"run":"new","fork_from":"{known}"}`, owner: 201, stranger: 404, byID: true},
	{method: "GET", path: agents + "/runs", owner: 200, stranger: 404, shows: true},
	{method: "GET", path: "/v1/runs", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{name: "of an agent", method: "GET", path: "/v1/runs", query: "agent={agent}", owner: 200, stranger: 404, shows: true},
	{method: "GET", path: oneRun, owner: 200, stranger: 404, shows: true},
	{method: "DELETE", path: oneRun, run: "asked", owner: 409, stranger: 404},
	{method: "DELETE", path: oneRun + "/checkpoints", owner: 200, stranger: 404},
	{method: "POST", path: oneRun + "/heartbeat", contentType: ckpt.ContentTypeJSON, body: `{"progress":0.5}`, owner: 200, stranger: 404, shows: true},
	{method: "POST", path: oneRun + "/end", contentType: ckpt.ContentTypeJSON, body: `{"status":"completed","state":{"end":1},"leave_uncertain":true,"reason":"r"}`, owner: 200, stranger: 404},
	{name: "forced", method: "POST", path: oneRun + "/resume", contentType: ckpt.ContentTypeJSON, body: `{"force":true}`, owner: 200, stranger: 200, shows: true},
	{name: "dry", method: "POST", path: oneRun + "/resume", contentType: ckpt.ContentTypeJSON, body: `{"dry_run":true}`, owner: 200, stranger: 200, shows: true},
	{method: "POST", path: oneRun + "/steps", contentType: ckpt.ContentTypeJSON, body: `{"key":"new","name":"n"}`, owner: 201, stranger: 201},
	{name: "done before", method: "POST", path: oneRun + "/steps", contentType: ckpt.ContentTypeJSON, body: `{"key":"{done}","name":"n"}`, owner: 201, stranger: 201, shows: true},
	{method: "POST", path: oneRun + "/steps/{key}/finish", contentType: ckpt.ContentTypeJSON, body: `{"result":1}`, owner: 200, stranger: 404},
	{method: "GET", path: oneRun + "/recorder", query: "bins=100", owner: 200, stranger: 404},
	{method: "GET", path: oneRun + "/transcript", query: "failed=true", owner: 200, stranger: 404},
	{method: "GET", path: oneRun + "/steps", owner: 200, stranger: 404, shows: true},
	{method: "POST", path: oneRun + "/operations", contentType: ckpt.ContentTypeJSON, body: `{"key":"new","name":"n","state":{"b":1}}`, owner: 201, stranger: 201},
	{method: "POST", path: oneRun + "/operations/{key}/succeed", contentType: ckpt.ContentTypeJSON, body: `{}`, owner: 200, stranger: 404},
	{method: "POST", path: oneRun + "/operations/{key}/fail", contentType: ckpt.ContentTypeJSON, body: `{"error":"no"}`, owner: 200, stranger: 404, shows: true},
	{method: "POST", path: oneRun + "/operations/{key}/doubt", contentType: ckpt.ContentTypeJSON, body: `{"error":"e"}`, owner: 200, stranger: 404, shows: true},
	{run: "asked", method: "POST", path: oneRun + "/operations/{key}/resolve", contentType: ckpt.ContentTypeJSON, body: `{"choice":"it_did_not","reason":"r"}`, owner: 200, stranger: 404},
	{method: "GET", path: oneRun + "/operations", owner: 200, stranger: 404, shows: true},
	{method: "POST", path: oneRun + "/events", contentType: ckpt.ContentTypeJSON, body: `[{"type":"t"}]`, owner: 201, stranger: 201},
	{method: "GET", path: oneRun + "/events", owner: 200, stranger: 404, shows: true},
	{name: "followed", method: "GET", path: oneRun + "/events", query: "follow=true", owner: 200, stranger: 404, shows: true},
	{method: "GET", path: "/v1/events", owner: 200, stranger: 200, missing: 200, shows: true},
	{method: "POST", path: oneRun + "/prompts", contentType: ckpt.ContentTypeJSON, body: `{"question":"go?","choices":["yes","no"]}`, owner: 201, stranger: 201},
	{name: "suspend", method: "POST", path: oneRun + "/prompts", contentType: ckpt.ContentTypeJSON, body: `{"key":"k","question":"go?","suspend":true}`, owner: 201, stranger: 201},
	{method: "GET", path: "/v1/prompts/{id}", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{name: "waited for", method: "GET", path: "/v1/prompts/{id}", query: "wait=1ms", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{method: "GET", path: "/v1/prompts", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{name: "open", method: "GET", path: "/v1/prompts", query: "open=true", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{method: "POST", path: "/v1/prompts/{id}/answer", contentType: ckpt.ContentTypeJSON, body: `{"choice":"it_did"}`, owner: 200, stranger: 404, byID: true, admin: 200},
	{name: "it did not", method: "POST", path: "/v1/prompts/{id}/answer", contentType: ckpt.ContentTypeJSON, body: `{"choice":"it_did_not"}`, owner: 200, stranger: 404, byID: true, admin: 200},

	{method: "POST", path: agents + "/contents/missing", contentType: ckpt.ContentTypeJSON, body: `{"sha256":["{content}"]}`, owner: 200, stranger: 200},
	{method: "POST", path: agents + "/contents", contentType: contents, body: emptySum + " 0 -\n", owner: 200, stranger: 200},
	{name: "after another", method: "POST", path: agents + "/contents", contentType: contents, body: emptySum + " 0 {content}\n", owner: 200, stranger: 200},
	{method: "GET", path: agents + "/contents/{sha256}", owner: 200, stranger: 404, byID: true, shows: true},
	{method: "POST", path: agents + "/trees", contentType: ckpt.ContentTypeJSON, body: `{"root":"/r","captured_at":null,"complete":true}`, owner: 200, stranger: 200},
	{name: "after another", method: "POST", path: agents + "/trees", contentType: ckpt.ContentTypeJSON,
		body: `{"base":"{tree}","root":"/r","captured_at":null,"complete":true}`, owner: 200, stranger: 409, byID: true},
	{name: "with a content", method: "POST", path: agents + "/trees", contentType: ckpt.ContentTypeJSON,
		body:  `{"root":"/r","captured_at":null,"complete":true,"set":[{"path":"p","mode":"0644","size":{contentsize},"sha256":"{content}"}]}`,
		owner: 200, stranger: 409, byID: true},
	{name: "with files", method: "PUT", path: oneSave, query: "kind=routine&run={run}", contentType: ckpt.ContentTypeJSON, body: `{"n":2}`,
		header: map[string]string{"Ckpt-Tree": "{tree}"}, owner: 201, stranger: 409, byID: true},
	{method: "POST", path: byID + "/tree", contentType: ckpt.ContentTypeJSON, body: `{"trees":["{tree}"]}`, owner: 200, stranger: 404, byID: true, admin: 200},
	{method: "GET", path: byID + "/files", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{method: "GET", path: "/v1/checkpoints/{a}/files/{b}", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},

	{method: "PUT", path: "/v1/tokens/{token}", contentType: ckpt.ContentTypeJSON, body: `{"sha256":"` + strings.Repeat("0", 64) + `"}`, owner: 200, stranger: 201},
	{method: "GET", path: "/v1/tokens", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{method: "DELETE", path: "/v1/tokens/{token}", owner: 200, stranger: 404},
	{method: "POST", path: "/v1/notify/test", owner: 403, stranger: 403, missing: 403, admin: 202},

	{method: "GET", path: agents + "/drift", query: "run={run}&all=true&timeline=true", owner: 200, stranger: 404, shows: true},
	{method: "GET", path: agents + "/drift/feedback", owner: 200, stranger: 404},
	{method: "POST", path: "/v1/drift/evaluate", contentType: ckpt.ContentTypeJSON, body: `{"agent":"{agent}","run":"{run}"}`, owner: 200, stranger: 404, shows: true},
	{method: "POST", path: agents + "/drift/findings", contentType: ckpt.ContentTypeJSON, body: `{"rule":"tired","severity":"warn","message":"m","run":"{run}"}`, owner: 201, stranger: 201},
	{method: "GET", path: "/v1/findings/{id}", owner: 200, stranger: 404, byID: true, admin: 200, shows: true},
	{method: "POST", path: "/v1/findings/{id}/dismiss", contentType: ckpt.ContentTypeJSON, body: `{"reason":"r"}`, owner: 200, stranger: 404, byID: true, admin: 200},

	{method: "POST", path: graph + "/put", contentType: framed, body: putFrame, owner: 200, stranger: 200},
	{method: "POST", path: graph + "/put_writes", contentType: framed,
		body: `{"thread":"{thread}","checkpoint":"1","task":"k","writes":[{"idx":1,"channel":"c","type":"json","length":1}]}` + "\n1", owner: 200, stranger: 200},
	{method: "POST", path: graph + "/get", contentType: ckpt.ContentTypeJSON, body: `{"thread":"{thread}"}`, owner: 200, stranger: 200, shows: true},
	{method: "POST", path: graph + "/list", contentType: ckpt.ContentTypeJSON, body: `{}`, owner: 200, stranger: 200, shows: true},
	{method: "POST", path: graph + "/history", contentType: ckpt.ContentTypeJSON, body: `{"thread":"{thread}","checkpoint":"2","channels":["a"]}`, owner: 200, stranger: 200, shows: true},
	{method: "POST", path: graph + "/delete_thread", contentType: ckpt.ContentTypeJSON, body: `{"thread":"{thread}"}`, owner: 200, stranger: 200},
	{method: "POST", path: graph + "/delete_runs", contentType: ckpt.ContentTypeJSON, body: `{"run_ids":["r"]}`, owner: 200, stranger: 200},
	{method: "POST", path: graph + "/copy_thread", contentType: ckpt.ContentTypeJSON, body: `{"from":"{thread}","to":"u"}`, owner: 200, stranger: 200},
	{method: "POST", path: graph + "/prune", contentType: ckpt.ContentTypeJSON, body: `{"threads":["{thread}"],"strategy":"delete"}`, owner: 200, stranger: 200},

	{method: "GET", path: "/v1/audit", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{name: "newest first", method: "GET", path: "/v1/audit", query: "newest=true&run={run}&who={owner}&outcome=done&since=2020-01-01T00%3A00%3A00Z", owner: 200, stranger: 200, missing: 200},
	{method: "POST", path: "/v1/verify", contentType: ckpt.ContentTypeJSON, body: `{"chain":true}`, owner: 403, stranger: 403, missing: 403, admin: 200},
	{method: "GET", path: "/v1/retention/forecast", query: "routine_keep=1", owner: 200, stranger: 200, missing: 200, star: true},
	{method: "GET", path: agents + "/retention/forecast", owner: 200, stranger: 404},
	{method: "GET", path: "/v1/changes", query: "follow=true", owner: 200, stranger: 200, missing: 200},
	{method: "GET", path: "/v1/findings", query: "closed=true", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{name: "of an agent", method: "GET", path: "/v1/audit", query: "agent={agent}", owner: 200, stranger: 200, missing: 200, shows: true},
	{method: "POST", path: "/v1/audit/archive", contentType: ckpt.ContentTypeJSON,
		body: `{"before":"2001-01-01T00:00:00.000Z"}`, owner: 403, stranger: 403, missing: 403, admin: 200},
	{method: "POST", path: "/v1/owners/chown", contentType: ckpt.ContentTypeJSON, body: `{"from":"uid:4000000001","to":"uid:4000000002","reason":"moved"}`,
		owner: 403, stranger: 403, missing: 403, admin: 404},
	{method: "POST", path: "/v1/fleet/claim", contentType: ckpt.ContentTypeJSON, body: `{"agent":"a"}`, owner: 403, stranger: 403, missing: 403, admin: 409, everyone: true},
	{method: "POST", path: "/v1/fleet/drain", owner: 403, stranger: 403, missing: 403, admin: 409, everyone: true},
	{method: "POST", path: agents + "/runs/{run}/release", owner: 409, stranger: 409, everyone: true}, // TestRelease tests it with a fleet
	{method: "GET", path: "/v1/overview", owner: 200, stranger: 200, missing: 200, shows: true, star: true},
	{method: "GET", path: "/v1/status", owner: 200, stranger: 200, missing: 200, star: true},
	{method: "GET", path: "/v1/fleet", owner: http.StatusForbidden, stranger: http.StatusForbidden, missing: http.StatusForbidden, admin: 200, everyone: true},
	{method: "GET", path: "/v1/fleet/hosts", owner: http.StatusForbidden, stranger: http.StatusForbidden, missing: http.StatusForbidden, admin: 409, everyone: true},
	{method: "GET", path: "/v1/fleet/runs", owner: 409, stranger: 409, everyone: true}, // TestFleetRights tests it with a fleet
	{method: "GET", path: "/v1/settings", owner: http.StatusForbidden, stranger: http.StatusForbidden, missing: http.StatusForbidden, admin: 200, everyone: true},
	{method: "GET", path: "/v1/version", owner: 200, stranger: 200, everyone: true},
	{method: "GET", path: "/healthz", owner: 200, stranger: 200, everyone: true},
	{method: "GET", path: "/readyz", owner: 200, stranger: 200, everyone: true},
	{method: "GET", path: "/metrics", owner: http.StatusForbidden, stranger: http.StatusForbidden, missing: http.StatusForbidden, admin: 200, everyone: true},
}
