package hook

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// DefaultRisky are the patterns of calls that begin an operation: they cannot be
// undone, or must not happen twice. A pattern is matched against "TOOL ARGUMENTS". If
// the tool runs commands, it is matched against "shell COMMAND" for each command of the
// line, without a preceding sudo, environment and the like.
var DefaultRisky = []string{
	// files and disks
	`^shell (rm|rmdir|rimraf|del-cli|shred|unlink|truncate|wipefs|mkfs\S*|dd|fdisk|parted) `,
	`^shell > `,
	`^shell (?i:del|erase|rd|format|remove-item|clear-content) `,
	`^shell find .* -(delete|exec(dir)? rm)\b`,
	// what others see of a repository, and what is not committed
	`^shell git (-\S+ (\S+ )?)*(push|reset (\S+ )*--hard|clean (\S+ )*(-[a-zA-Z]*f[a-zA-Z]*|--force)|branch (\S+ )*-D|tag (\S+ )*-d|filter-branch|rebase|stash (drop|clear))\b`,
	`^shell git (-\S+ (\S+ )?)*(checkout (\S+ )*(--|\.|-f|--force) |switch (\S+ )*(-f|--force|--discard-changes) |worktree remove |update-ref -d |reflog (expire|delete) )`,
	`^shell git (-\S+ (\S+ )?)*restore ((-q|--quiet|-p|--patch|--ours|--theirs|--|-s \S+|--source[ =]\S+) )*([^- ]|(\S+ )*(-W|--worktree) )`,
	`^shell (gh|glab) (pr|mr) merge\b`,
	`^shell (gh|glab) (release|repo|issue|secret|workflow) (create|delete|edit|close|run|set)\b`,
	`^shell (gh|glab) api (.* )?(-X ?|--method[ =])(POST|PUT|PATCH|DELETE)\b`,
	`^shell (gh|glab) api (.* )?(-[fF]|--field|--raw-field|--input)[ =]`,
	`^shell hub release\b`,
	// packages and images
	`^shell (npm|pnpm|yarn|cargo|poetry|hatch|uv|flit|gem|dart pub|mix hex\.|helm|vsce) (.* )?(publish|unpublish|push|yank)\b`,
	`^shell twine upload\b`,
	`^shell (docker|podman|buildah) (.* )?(push|(system|volume|image|container|network) prune|volume rm|rmi|rm)\b`,
	`^shell (docker|podman)[ -]compose (.* )?(down (.* )?(-v|--volumes)|rm) `,
	// infrastructure and deployments
	`^shell (terraform|tofu|pulumi|cdk|serverless|sls|sam|terragrunt) (.* )?(apply|destroy|deploy|up|import|remove|taint)\b`,
	`^shell kubectl (.* )?(apply|create|delete|replace|patch|scale|rollout|drain|cordon|exec)\b`,
	`^shell helm (.* )?(install|upgrade|uninstall|rollback)\b`,
	`^shell (aws|gcloud|az|doctl|heroku|fly|flyctl|vercel|netlify|wrangler|firebase|ansible-playbook|cap|eb) ` +
		`(.* )?(deploy|delete|create|update|put|rm|sync|terminate|scale|publish|destroy|remove|restart|set|mv|cp|` +
		`promote|rollback|\S+\.ya?ml)\b`,
	`^shell (systemctl|service) (.* )?(stop|restart|disable|mask)\b`,
	`^shell (make|just|task|npm run|pnpm|yarn|rake|invoke|fab) (.* )?\S*(deploy|release|publish|migrate|prod)\S*`,
	// databases
	`^shell (psql|mysql|sqlite3|mongosh|redis-cli|sqlcmd) (?i:.*\b(drop|delete|truncate|update|insert|alter|flushall|flushdb)\b)`,
	`^shell (alembic|flyway|liquibase|prisma|knex|sequelize|dbmate|goose|atlas) ` +
		`(.* )?(upgrade|downgrade|migrate|update|reset|deploy|apply|up|down|rollback)\b`,
	`^shell (\S+ )?(manage\.py|artisan|rails|rake) (.* )?(db:|migrate|flush)`,
	// messages and money
	`^shell (mail|sendmail|mutt|msmtp|stripe) `,
	`^shell curl (.* )?(-[a-zA-Z]*X ?|--request[ =])(POST|PUT|PATCH|DELETE)\b`,
	`^shell curl (.* )?(-[a-zA-Z]*[dFT]|--data\S*|--form\S*|--json|--upload-file)\b`,
	`^shell wget (.* )?(--method=(POST|PUT|PATCH|DELETE)|--(post|body)-(data|file))\b`,
	// tools of MCP servers whose names say so
	`^mcp__\S*__\S*(delete|remove|drop|destroy|deploy|publish|send|post_|create_(issue|pull|release)|merge|push|` +
		`pay|transfer|refund|purchase|execute_sql|apply_migration)\S* `,
}

// Risky holds the patterns of risky calls, and the patterns of exceptions.
type Risky struct {
	yes, no []string
	once    sync.Once // compiling them costs a hook more time than most events take

	yesRead, noRead []*regexp.Regexp
	err             error
}

// NewRisky makes a Risky. more are patterns in addition to the default ones, or instead
// of them. not are patterns of calls that are not risky.
func NewRisky(more, not []string, instead bool) *Risky {
	if !instead {
		more = append(append([]string{}, DefaultRisky...), more...)
	}
	return &Risky{yes: more, no: not}
}

// Check returns an error if a pattern is not a regular expression.
func (r *Risky) Check() error {
	r.once.Do(func() {
		if r.yesRead, r.err = readPatterns(r.yes); r.err == nil {
			r.noRead, r.err = readPatterns(r.no)
		}
	})
	return r.err
}

func readPatterns(patterns []string) (list []*regexp.Regexp, err error) {
	for _, p := range patterns {
		read, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("the pattern %q is not a regular expression: %w", p, err)
		}
		list = append(list, read)
	}
	return list, nil
}

// Is reports whether a call is risky, and returns the part of it that is.
func (r *Risky) Is(in *Input) (what string, risky bool) {
	if r.Check() != nil {
		return "", false
	}
	for _, line := range callLines(in) {
		if matchesAny(r.yesRead, line) && !matchesAny(r.noRead, line) {
			return line, true
		}
	}
	return "", false
}

func matchesAny(list []*regexp.Regexp, line string) bool {
	for _, p := range list {
		if p.MatchString(line) {
			return true
		}
	}
	return false
}

// maxLine is the most bytes that patterns are matched against.
const maxLine = 16 << 10

// callLines returns the lines that patterns are matched against.
func callLines(in *Input) (lines []string) {
	command, shell := in.command()
	if !shell {
		return []string{limit(in.tool()+" "+string(in.ToolInput), maxLine)}
	}
	for _, one := range commandsOf(limit(command, maxLine)) {
		lines = append(lines, "shell "+one)
	}
	return lines
}

// lazily compiles a pattern when it is needed, because every command of the program would wait for it.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// limit cuts a text to at most so many bytes, at the end of a character.
func limit(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
