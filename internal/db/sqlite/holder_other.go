//go:build !linux

package sqlite

// lockHolder names no process: this system does not say who holds a lock.
func (e *Engine) lockHolder() holder { return holder{} }

// lockedBy names no process: this system does not say who holds a lock.
func lockedBy(string) holder { return holder{} }

// holdsReadLock is always false: this system does not say who holds a lock.
func (e *Engine) holdsReadLock() bool { return false }

// lookAtLocks does nothing: only Linux has locks by open file.
func (e *Engine) lookAtLocks() {}
