package daemon

import (
	"time"
)

// reload reads the settings again and applies those that can be changed while the daemon
// runs. It logs the names of the other changed settings, which keep their old values. If
// the new settings are wrong, all settings keep their old values.
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

// changedSettings returns the settings that differ in next: those that can be changed
// while the daemon runs, and the others.
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

// adopt applies changed settings. It ends the background loops and starts them again,
// because their pace may have changed.
func (s *service) adopt(changed []Setting, next *Config) {
	if len(changed) == 0 {
		return
	}
	c := &s.daemon.Config
	for _, setting := range changed {
		_ = c.Set(setting.Key, setting.Text(), next.SetBy(setting.Key)) // it was checked, and Set reads what Text writes
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

// pace sets the intervals of the loops. The loops do not run at this time.
func (s *service) pace(c *Config) {
	s.worker.Interval, s.worker.KeyKeep = time.Duration(c.RetentionInterval), time.Duration(c.RetentionKeys)
	s.monitor.Interval = time.Duration(c.MonitorInterval)
	s.backups.set(c)
	s.archives.set(c)
	s.setHooks()
}
