//go:build !linux && !darwin && !windows

package monitor

// startNeedsBoot: nothing is known of processes here, so timeouts alone count.
const startNeedsBoot = true

func readBoot() string { return "" }

func ownerOf(int) string { return "" }

func look(int) (start string, s standing) { return "", hidden }
