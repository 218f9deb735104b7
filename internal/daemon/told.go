package daemon

import "github.com/ckptsidecar/ckptsidecar/internal/survey"

// hidden lists settings whose values can contain credentials.
var hidden = map[string]string{"notify": "hooks are set: see the file"}

// told returns the settings in the form that administrators may see.
func told(c *Config) []survey.Setting {
	var list []survey.Setting
	for _, s := range c.Settings() {
		t := survey.Setting{Key: s.Key, Value: s.Text(), SetBy: c.SetBy(s.Key), Env: s.Env, Live: s.Live, Doc: s.Doc}
		if instead, is := hidden[s.Key]; is && t.SetBy != "" {
			t.Value = instead
		}
		list = append(list, t)
	}
	return list
}
