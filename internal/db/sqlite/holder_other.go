//go:build !linux

package sqlite

// lockHolder is nobody that can be named: this system does not say who holds a lock.
func (e *Engine) lockHolder() holder { return holder{} }

// holdsReadLock is not known here.
func (e *Engine) holdsReadLock() bool { return false }

// lookAtLocks has nothing to say: only Linux has locks by open file.
func (e *Engine) lookAtLocks() {}
