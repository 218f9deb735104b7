package osfile

import "os"

// Unlock releases the lock of a file, which closing the file drops.
func Unlock(f *os.File) error { return f.Close() }
