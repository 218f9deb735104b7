package hook_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ckptsidecar/ckptsidecar/internal/hook"
)

// operationOf returns the operation that a call of a tool would begin, or ""
// for none.
func operationOf(t *testing.T, r *hook.Risky, tool string, args any) string {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	what, _ := r.Is(&hook.Input{Tool: tool, ToolInput: text})
	return strings.TrimSpace(what)
}

func TestWhatIsRisky(t *testing.T) {
	r := hook.NewRisky(nil, nil, false)
	for command, want := range map[string]string{
		"rm -rf build":                              "rm -rf build",
		"cd x && git push origin main":              "git push origin main",
		"git -C /repo push":                         "git -C /repo push",
		"git reset --hard HEAD~1":                   "git reset --hard HEAD~1",
		"sudo -n rm /etc/x":                         "rm /etc/x",
		"TOKEN=x npm publish --access public":       "npm publish --access public",
		"bash -c 'terraform apply'":                 "terraform apply",
		"/usr/local/bin/kubectl delete pod web-1":   "kubectl delete pod web-1",
		"find . -name '*.o' -delete":                "find . -name '*.o' -delete",
		"ls | xargs rm":                             "rm",
		"make deploy-prod":                          "make deploy-prod",
		"gh pr merge 12":                            "gh pr merge 12",
		"curl -X POST https://example.org/pay":      "curl -X POST https://example.org/pay",
		"psql -c 'DROP TABLE users'":                "psql -c 'DROP TABLE users'",
		"echo done; docker push example.org/img":    "docker push example.org/img",
		"timeout 30 git push":                       "git push",
		"aws s3 rm s3://bucket/key":                 "aws s3 rm s3://bucket/key",
		"git clean -fd":                             "git clean -fd",
		"git clean -d --force":                      "git clean -d --force",
		"git reset -q --hard":                       "git reset -q --hard",
		"git clean -n":                              "",
		"git branch --list 'D*'":                    "",
		"sudo -u www-data rm -rf /srv/x":            "rm -rf /srv/x",
		"ls | xargs -I {} rm {}":                    "rm {}",
		"timeout -k 5 30 git push":                  "git push",
		"PGPASSWORD='a b' psql -c 'drop table x'":   "psql -c 'drop table x'",
		"if git push; then echo done; fi":           "git push",
		"curl -s \\\n  -X POST \\\n  https://x.org": "curl -s -X POST https://x.org",
		"curl -sX 'DELETE' https://x.org/1":         "curl -sX DELETE https://x.org/1",
		"curl 'https://x.org/?a=1&b=2' -X PUT":      "curl 'https://x.org/?a=1&b=2' -X PUT",
		"psql -c 'begin; delete from x; commit'":    "psql -c 'begin; delete from x; commit'",
		"psql <<SQL\nselect 1;\nDROP TABLE x;\nSQL": "psql select 1; DROP TABLE x;",
		"cat > x.sql <<'E'\nDROP TABLE x;\nE\nls":   "",
		"npx prisma migrate deploy":                 "prisma migrate deploy",
		"uv run alembic upgrade head":               "alembic upgrade head",
		"python3 -m twine upload dist/*":            "twine upload dist/*",
		"bundle exec rails db:migrate":              "rails db:migrate",
		"npx prettier --check .":                    "",
		"python3 -m pytest":                         "",
		"ls -la":                                    "",
		"git status && git diff":                    "",
		"git commit -m 'push it'":                   "",
		"grep -r 'rm -rf' .":                        "",
		"cargo test":                                "",
		"npm run build":                             "",
		"curl https://example.org":                  "",
		`\rm -rf x`:                                 "rm -rf x",
		`"rm" x`:                                    "rm x",
		"curl -d a=1 https://x.org":                 "curl -d a=1 https://x.org",
		"curl -s --data-binary @f https://x.org":    "curl -s --data-binary @f https://x.org",
		"curl -fsSL https://x.org":                  "",
		"gh api -X DELETE repos/a/b":                "gh api -X DELETE repos/a/b",
		"gh api repos/a/b":                          "",
		"docker compose down -v":                    "docker compose down -v",
		"docker compose down":                       "",
		"docker run --rm img":                       "",
		"ssh host rm -rf /srv/x":                    "rm -rf /srv/x",
		"ssh -p 22 -i k me@host 'cd x && rm -rf y'": "rm -rf y",
		"git checkout -- .":                         "git checkout -- .",
		"git checkout .":                            "git checkout .",
		"git checkout main":                         "",
		"git restore .":                             "git restore .",
		"git restore --staged a.go":                 "",
		"> file":                                    "> file",
		": > log.txt":                               "> log.txt",
		"echo x > a.txt":                            "",
		"ls > /dev/null":                            "",
		"npx rimraf dist":                           "rimraf dist",
		"echo \"$(rm x)\"":                          "rm x",
		"bash <<E\nrm -rf x\nE":                     "rm -rf x",
		"f() { git push; }; f":                      "git push",
		"sh -c \"sh -c 'rm x'\"":                    "rm x",
		"Remove-Item -Recurse x":                    "Remove-Item -Recurse x",
		"echo 'unclosed; rm x":                      "rm x",
		"for f in *; do rm $f; done":                "rm $f",
		"echo rm x # rm y":                          "",
		"terraform plan":                            "",
		"kubectl get pods":                          "",
		"psql -c 'select 1'":                        "",
		"":                                          "",
	} {
		if want != "" {
			want = "shell " + want
		}
		if got := operationOf(t, r, "Bash", map[string]any{"command": command}); got != want {
			t.Errorf("%q begins %q, want %q", command, got, want)
		}
	}
	for tool, want := range map[string]bool{"mcp__github__merge_pull_request": true, "mcp__mail__send_message": true, "mcp__github__get_issue": false, "Write": false, "Read": false} {
		if got := operationOf(t, r, tool, map[string]any{"id": 1}); (got != "") != want {
			t.Errorf("%s begins %q", tool, got)
		}
	}
	if got := operationOf(t, r, "shell", map[string]any{"command": []string{"git", "push"}}); got != "shell git push" {
		t.Errorf("a command in words begins %q", got)
	}
}

func TestRiskyIsASetting(t *testing.T) {
	r := hook.NewRisky([]string{`^Write .*\.env`, `^shell just ship`}, []string{`^shell rm -rf build`}, false)
	only := hook.NewRisky([]string{`^shell just ship`}, nil, true)
	for _, test := range []struct {
		r          *hook.Risky
		tool, args string
		want       bool
	}{
		{r, "Write", `{"file_path":"/x/.env"}`, true}, {r, "Write", `{"file_path":"/x/a.go"}`, false},
		{r, "Bash", `{"command":"just ship"}`, true}, {r, "Bash", `{"command":"rm -rf build"}`, false}, {r, "Bash", `{"command":"rm -rf src"}`, true},
		{only, "Bash", `{"command":"just ship"}`, true}, {only, "Bash", `{"command":"rm -rf src"}`, false},
	} {
		if _, got := test.r.Is(&hook.Input{Tool: test.tool, ToolInput: []byte(test.args)}); got != test.want {
			t.Errorf("%s %s is risky: %v", test.tool, test.args, got)
		}
	}
	if err := hook.NewRisky([]string{"("}, nil, false).Check(); err == nil || !strings.Contains(err.Error(), `"("`) {
		t.Errorf("a pattern that is none: %v", err)
	}
}
