package server

import (
	"net/http"
	"slices"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// routes is the whole API.
var routes = []route{
	{name: "save", method: "POST", path: "/v1/agents/{agent}/checkpoints", params: postParams, write: true, do: (*call).postCheckpoint},
	{name: "save", method: "PUT", path: "/v1/agents/{agent}/checkpoints/{id}", params: postParams, write: true, do: (*call).putCheckpoint},
	{name: "list", method: "GET", path: "/v1/agents/{agent}/checkpoints", params: listParams, do: (*call).listCheckpoints},
	{name: "latest", method: "GET", path: "/v1/agents/{agent}/checkpoints/latest", params: latestParams, do: (*call).latestCheckpoint},
	{name: "show", method: "GET", path: "/v1/checkpoints/{id}", params: []string{"state"}, do: (*call).getCheckpoint},
	{name: "state", method: "GET", path: "/v1/checkpoints/{id}/state", do: (*call).getState},
	{name: "patch", method: "PATCH", path: "/v1/checkpoints/{id}", params: reasonParams, write: true, do: (*call).patchCheckpoint},
	{name: "delete", method: "DELETE", path: "/v1/checkpoints/{id}", params: reasonParams, write: true, do: (*call).deleteCheckpoint},
	{name: "diff", method: "GET", path: "/v1/checkpoints/{a}/diff/{b}", do: (*call).diffCheckpoints},
	{name: "restore", method: "POST", path: "/v1/agents/{agent}/restore", write: true, do: (*call).restore},

	{name: "agents", method: "GET", path: "/v1/agents", params: []string{"before", "limit", "states"}, do: (*call).listAgents},
	{name: "erase", method: "DELETE", path: "/v1/agents/{agent}", write: true, do: (*call).eraseAgent},
	{name: "policy", method: "GET", path: "/v1/agents/{agent}/policy", params: []string{"layers"}, do: (*call).getPolicy},
	{name: "set_policy", method: "PUT", path: "/v1/agents/{agent}/policy", params: reasonParams, write: true, do: (*call).putPolicy},
	{name: "policy", method: "GET", path: "/v1/policy", do: (*call).getOwnerPolicy},
	{name: "set_owner_policy", method: "PUT", path: "/v1/policy", params: reasonParams, write: true, do: (*call).putOwnerPolicy},
	{name: "export", method: "GET", path: "/v1/agents/{agent}/export", params: []string{"run", "files"}, do: (*call).exportAgent},
	{name: "export", method: "GET", path: "/v1/export", params: []string{"agents", "files"}, do: (*call).exportAgents},
	{name: "import", method: "POST", path: "/v1/import", params: []string{"agent"}, write: true, do: (*call).importAgent},
	{name: "prune", method: "POST", path: "/v1/prune", params: reasonParams, write: true, do: (*call).prune},

	{name: "start_run", method: "POST", path: runsPath, params: reasonParams, write: true, do: (*call).startRun},
	{name: "runs", method: "GET", path: runsPath, params: findParams, do: (*call).listRuns},
	{name: "runs", method: "GET", path: "/v1/runs", params: append([]string{"agent"}, findParams...), do: (*call).listRuns},
	{name: "run", method: "GET", path: oneRunPath, do: (*call).getRun},
	{name: "delete_run", method: "DELETE", path: oneRunPath, params: []string{"force"}, write: true, do: (*call).deleteRun},
	{name: "clear_run", method: "DELETE", path: oneRunPath + "/checkpoints", write: true, do: (*call).clearRun},
	{name: "beat", method: "POST", path: oneRunPath + "/heartbeat", write: true, urgent: true, do: (*call).beat},
	{name: "end_run", method: "POST", path: oneRunPath + "/end", write: true, do: (*call).endRun},
	{name: "resume", method: "POST", path: oneRunPath + "/resume", write: true, do: (*call).resume},
	{name: "begin_step", method: "POST", path: oneRunPath + "/steps", write: true, do: (*call).beginStep},
	{name: "finish_step", method: "POST", path: oneRunPath + "/steps/{key}/finish", write: true, do: (*call).finishStep},
	{name: "steps", method: "GET", path: oneRunPath + "/steps", params: partParams, do: (*call).listSteps},
	{name: "begin_operation", method: "POST", path: oneRunPath + "/operations", write: true, do: (*call).beginOperation},
	{name: "end_operation", method: "POST", path: oneRunPath + "/operations/{key}/succeed", write: true, do: (*call).succeedOperation},
	{name: "end_operation", method: "POST", path: oneRunPath + "/operations/{key}/fail", write: true, do: (*call).failOperation},
	{name: "end_operation", method: "POST", path: oneRunPath + "/operations/{key}/doubt", write: true, do: (*call).doubtOperation},
	{name: "resolve_operation", method: "POST", path: oneRunPath + "/operations/{key}/resolve", write: true, do: (*call).resolveOperation},
	{name: "operations", method: "GET", path: oneRunPath + "/operations", params: partParams, do: (*call).listOperations},
	{name: "append_events", method: "POST", path: oneRunPath + "/events", params: []string{"epoch"}, write: true, do: (*call).appendEvents},
	{name: "events", method: "GET", path: oneRunPath + "/events", params: []string{"after", "limit", "follow"}, do: (*call).getEvents},
	{name: "events", method: "GET", path: "/v1/events", params: []string{"after", "limit", "follow"}, do: (*call).getOwnerEvents},
	{name: "ask", method: "POST", path: oneRunPath + "/prompts", write: true, do: (*call).askQuestion},
	{name: "prompts", method: "GET", path: "/v1/prompts", params: []string{"open", "before", "limit"}, do: (*call).listPrompts},
	{name: "prompt", method: "GET", path: "/v1/prompts/{id}", params: []string{"wait"}, do: (*call).getPrompt},
	{name: "answer_prompt", method: "POST", path: "/v1/prompts/{id}/answer", write: true, do: (*call).answerPrompt},

	{name: "notify_test", method: "POST", path: "/v1/notify/test", write: true, do: (*call).testNotify},

	{name: "drift", method: "GET", path: "/v1/agents/{agent}/drift",
		params: []string{"run", "all", "timeline", "before", "limit"}, do: (*call).getDrift},
	{name: "drift_feedback", method: "GET", path: "/v1/agents/{agent}/drift/feedback", do: (*call).driftFeedback},
	{name: "evaluate_drift", method: "POST", path: "/v1/drift/evaluate", do: (*call).evaluateDrift},
	{name: "post_finding", method: "POST", path: "/v1/agents/{agent}/drift/findings", write: true, do: (*call).postFinding},
	{name: "finding", method: "GET", path: "/v1/findings/{id}", do: (*call).getFinding},
	{name: "dismiss_finding", method: "POST", path: "/v1/findings/{id}/dismiss", write: true, do: (*call).dismissFinding},

	{name: "graph_put", method: "POST", path: graphPath + "/put", write: true, do: (*call).putGraph},
	{name: "graph_writes", method: "POST", path: graphPath + "/put_writes", write: true, do: (*call).putGraphWrites},
	{name: "graph_get", method: "POST", path: graphPath + "/get", do: (*call).getGraph},
	{name: "graph_list", method: "POST", path: graphPath + "/list", do: (*call).listGraph},
	{name: "graph_history", method: "POST", path: graphPath + "/history", do: (*call).graphHistory},
	{name: "delete_thread", method: "POST", path: graphPath + "/delete_thread", write: true, do: (*call).deleteGraphThread},
	{name: "delete_runs", method: "POST", path: graphPath + "/delete_runs", write: true, do: (*call).deleteGraphRuns},
	{name: "copy_thread", method: "POST", path: graphPath + "/copy_thread", write: true, do: (*call).copyGraphThread},
	{name: "prune_threads", method: "POST", path: graphPath + "/prune", write: true, do: (*call).pruneGraph},

	{name: "missing_contents", method: "POST", path: "/v1/agents/{agent}/contents/missing", write: true, do: (*call).missingContents},
	{name: "put_contents", method: "POST", path: "/v1/agents/{agent}/contents", write: true, do: (*call).putContents},
	{name: "content", method: "GET", path: "/v1/agents/{agent}/contents/{sha256}", do: (*call).getContent},
	{name: "put_tree", method: "POST", path: "/v1/agents/{agent}/trees", write: true, do: (*call).putTree},
	{name: "attach_files", method: "POST", path: "/v1/checkpoints/{id}/tree", write: true, do: (*call).attachTrees},
	{name: "files", method: "GET", path: "/v1/checkpoints/{id}/files", params: []string{"tree", "after", "limit"}, do: (*call).listFiles},
	{name: "files_diff", method: "GET", path: "/v1/checkpoints/{a}/files/{b}", params: []string{"root", "after", "limit"}, do: (*call).diffFiles},

	{name: "overview", method: "GET", path: "/v1/overview", params: []string{"span", "limit"}, do: (*call).getOverview},
	{name: "recorder", method: "GET", path: oneRunPath + "/recorder", params: []string{"from", "to", "bins"}, do: (*call).getRecorder},
	{name: "transcript", method: "GET", path: oneRunPath + "/transcript", params: []string{"at", "before", "after", "from", "failed", "text", "limit"}, do: (*call).getTranscript},

	{name: "put_token", method: "PUT", path: "/v1/tokens/{token}", write: true, do: (*call).putToken},
	{name: "revoke_token", method: "DELETE", path: "/v1/tokens/{token}", write: true, do: (*call).revokeToken},
	{name: "tokens", method: "GET", path: "/v1/tokens", params: []string{"before", "limit"}, do: (*call).listTokens},

	{name: "audit", method: "GET", path: "/v1/audit", params: auditParams, do: (*call).listAudit},
	{name: "verify", method: "POST", path: "/v1/verify", do: (*call).verify},
	{name: "forecast", method: "GET", path: "/v1/retention/forecast", params: forecastParams, do: (*call).getForecast},
	{name: "forecast", method: "GET", path: "/v1/agents/{agent}/retention/forecast", params: forecastParams, do: (*call).getForecast},
	{name: "changes", method: "GET", path: "/v1/changes", params: []string{"follow"}, do: (*call).followChanges},
	{name: "findings", method: "GET", path: "/v1/findings", params: findingParams, do: (*call).listFindings},
	{name: "chown", method: "POST", path: "/v1/owners/chown", write: true, do: (*call).chownAgents},
	{name: "claim_run", method: "POST", path: "/v1/fleet/claim", params: reasonParams, write: true, do: (*call).claimRun},
	{name: "release_run", method: "POST", path: oneRunPath + "/release", write: true, do: (*call).releaseRun},
	{name: "drain", method: "POST", path: "/v1/fleet/drain", write: true, do: (*call).drainHost},
	{name: "archive_audit", method: "POST", path: "/v1/audit/archive", write: true, do: (*call).archiveAudit},
	{name: "status", method: "GET", path: "/v1/status", do: (*call).getStatus},
	{name: "fleet", method: "GET", path: "/v1/fleet", do: (*call).getFleet},
	{name: "fleet_hosts", method: "GET", path: "/v1/fleet/hosts", do: (*call).listFleetHosts},
	{name: "fleet_runs", method: "GET", path: "/v1/fleet/runs",
		params: []string{"host", "principal", "agent", "status", "before", "limit"}, do: (*call).listFleetRuns},
	{name: "settings", method: "GET", path: "/v1/settings", do: (*call).getSettings},
	{name: "version", method: "GET", path: "/v1/version", free: true, do: (*call).getVersion},
	{name: "health", method: "GET", path: "/healthz", free: true, do: (*call).getHealth},
	{name: "ready", method: "GET", path: "/readyz", free: true, do: (*call).getReadiness},
	{name: "metrics", method: "GET", path: "/metrics", free: true, do: (*call).getMetrics},
}

var (
	auditParams    = []string{"agent", "run", "action", "who", "outcome", "since", "newest", "after", "before", "limit"}
	reasonParams   = []string{reasonParameter}
	forecastParams = []string{"routine_keep", "recovery_keep", "pre_operation_keep", "ended_keep", "max_bytes", "limit"}
	findingParams  = []string{"agent", "run", "rule", "severity", "since", "until", "closed", "before", "limit"}
)

// resource has the routes at one path, by method.
type resource struct {
	path   string
	routes []*route
	allow  string
}

// newMux registers paths without methods: net/http would answer a wrong method with text.
func newMux() *http.ServeMux {
	paths := make(map[string]*resource)
	for i := range routes {
		r := &routes[i]
		if paths[r.path] == nil {
			paths[r.path] = &resource{path: r.path}
		}
		paths[r.path].routes = append(paths[r.path].routes, r)
	}
	mux := http.NewServeMux()
	for path, res := range paths {
		res.allow = res.allowed()
		mux.Handle(path, res)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.(*call).err = noSuchPath() })
	return mux
}

func (res *resource) allowed() string {
	methods := []string{http.MethodOptions}
	for _, r := range res.routes {
		methods = append(methods, r.method)
		if r.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// ServeHTTP passes the call to the route of its method.
func (res *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := w.(*call)
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, rt := range res.routes {
		if rt.method == method {
			c.err = c.run(rt)
			return
		}
	}
	c.Header().Set("Allow", res.allow)
	if method == http.MethodOptions {
		c.WriteHeader(http.StatusNoContent)
		return
	}
	c.err = &statusError{http.StatusMethodNotAllowed, ckpt.Errorf(ckpt.CodeInvalid, "%s takes %s, not %s", res.path, res.allow, shown(r.Method))}
}
