package daemon

import (
	"time"
)

// reload reads the settings anew and takes those into use that can be changed
// while the daemon runs. The others are named, and go on as they were; so do
// all where the new ones are wrong.
func (s *service) reload() {
	if s.daemon.Load == nil {
		s.log.Warn("asked to reload the settings, but the daemon has no source to read them from")
		return
	}
	s.manager.Reloading()
	defer s.manager.Ready()
	next, err := s.daemon.Load()
	if err != nil {
		s.log.Error("the new settings are wrong; the old ones stay in effect", "error", err)
		return
	}
	live, later := changedSettings(&s.daemon.Config, &next)
	s.adopt(live, &next)
	s.fleet.ReadKeys() // the file may have changed
	s.log.Info("the settings were reloaded", "changed", keysOf(live))
	if len(later) > 0 {
		s.log.Warn("these changed settings take effect after a restart", "settings", keysOf(later))
	}
}

// changedSettings are those of next that are not as they were: what can be
// changed while the daemon runs, and what cannot.
func changedSettings(was, next *Config) (live, later []Setting) {
	before := was.Settings()
	for i, setting := range next.Settings() {
		switch {
		case setting.tomlText() == before[i].tomlText():
		case setting.Live:
			live = append(live, setting)
		default:
			later = append(later, setting)
		}
	}
	return live, later
}

func keysOf(list []Setting) []string {
	keys := make([]string, len(list))
	for i, s := range list {
		keys[i] = s.Key
	}
	return keys
}

// adopt takes changed settings into use. The loops beside the requests end and
// begin anew, because their pace is what may have changed.
func (s *service) adopt(changed []Setting, next *Config) {
	if len(changed) == 0 {
		return
	}
	c := &s.daemon.Config
	for _, setting := range changed {
		_ = c.Set(setting.Key, setting.Text(), next.SetBy(setting.Key)) // it was checked, and reads what it writes
	}
	s.tellSettings()
	if err := s.store.SetDaemonPolicy([]byte(c.Policy)); err != nil {
		s.log.Error("[policy] of the settings could not be applied; the old one stays in effect", "error", err)
	}
	s.renameUsers()
	if level, err := c.Level(); err == nil && s.daemon.Level != nil {
		s.daemon.Level.Set(level)
	}
	s.endPaced()
	s.paced.Wait()
	s.pace(c)
	s.startPaced()
}

// pace gives the loops their intervals. They do not run just now.
func (s *service) pace(c *Config) {
	s.worker.Interval, s.worker.KeyKeep = time.Duration(c.RetentionInterval), time.Duration(c.RetentionKeys)
	s.monitor.Interval = time.Duration(c.MonitorInterval)
	s.backups.set(c)
	s.archives.set(c)
	s.setHooks()
}
