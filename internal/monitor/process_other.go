//go:build !linux && !darwin && !windows

package monitor

import "time"

// startNeedsBoot: nothing is known of processes here, so timeouts alone count.
const startNeedsBoot = true

func readBoot() string { return "" }

func ownerOf(int) string { return "" }

func originOf(int) (parent int, began time.Time, known bool) { return 0, time.Time{}, false }

func look(int) (start string, s standing) { return "", hidden }
