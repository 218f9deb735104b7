package console

import (
	"context"
	"net/http"
	"strings"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/console/draw"
	"github.com/ckptsidecar/ckptsidecar/internal/survey"
)

// Check is one result of the command line's doctor.
type Check struct {
	Name, Level, What, Do string // Level is ok, warn or fail
}

// Doctor checks the machine. It can take a second.
type Doctor func(context.Context) ([]Check, error)

// systemView shows the daemon itself.
type systemView struct {
	frame
	Status   *ckpt.Status
	Up       string
	Checks   []Check
	Backup   string
	Settings []settingGroup
	Set      int // how many settings are not the defaults
}

// settingGroup is a group of settings: those that have been set, or those that have their
// defaults.
type settingGroup struct {
	ID, Name string
	Open     bool
	Rows     []survey.Setting
}

func (c *Console) system(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	st, err := c.daemon.all().Status(ctx)
	if err != nil {
		c.trouble(w, r, err)
		return
	}
	var checks []Check
	if c.options.Doctor != nil {
		if checks, err = c.options.Doctor(ctx); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	var settings *survey.Settings // the daemon shows them to administrators only
	if c.daemon.isAdmin() {
		if settings, err = c.daemon.all().Settings(ctx); err != nil {
			c.trouble(w, r, err)
			return
		}
	}
	c.show(w, r, http.StatusOK, "system", viewSystem(c.frameOf(r, "System", "system"), st, checks, settings))
}

// viewSystem puts the settings that have been set before those that have their defaults.
func viewSystem(f frame, st *ckpt.Status, checks []Check, settings *survey.Settings) *systemView {
	v := &systemView{frame: f, Status: st, Up: draw.Age(st.Now.Sub(st.StartedAt.Time)), Checks: checks, Backup: "ckptsidecar backup FILE"}
	if settings == nil {
		return v
	}
	var set, rest []survey.Setting
	for _, s := range settings.Settings {
		s.Doc = firstSentence(s.Doc)
		if s.SetBy != "" {
			set = append(set, s)
		} else {
			rest = append(rest, s)
		}
	}
	v.Set = len(set)
	v.Settings = []settingGroup{{"set", "Set here", true, set}, {"unset", "Defaults", false, rest}}
	return v
}

// firstSentence returns the first sentence, because a table has no room for more.
func firstSentence(text string) string {
	if first, _, more := strings.Cut(text, ". "); more {
		return first + "."
	}
	return text
}
