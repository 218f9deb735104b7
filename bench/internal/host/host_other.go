//go:build !linux

package host

import (
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// Check says whether this machine can run the benchmark.
func Check() error { return ErrLinuxOnly }

func startChild(*exec.Cmd, *User) error { return ErrLinuxOnly }

// Pause works only on Linux.
func (p *Process) Pause() error { return ErrLinuxOnly }

// Resume works only on Linux.
func (p *Process) Resume() error { return ErrLinuxOnly }

// CPU works only on Linux.
func (p *Process) CPU() (time.Duration, error) { return 0, ErrLinuxOnly }

type member struct{ pid int }

func killAll([]member)           {}
func tree(int) ([]member, error) { return nil, ErrLinuxOnly }

// SyncData works only on Linux.
func SyncData(*os.File) error { return ErrLinuxOnly }

// Lock works only on Linux.
func Lock(string) (*os.File, error) { return nil, ErrLinuxOnly }

// Disk is the file system that is measured.
type Disk struct{}

// OpenDisk works only on Linux.
func OpenDisk(string) (*Disk, error) { return nil, ErrLinuxOnly }

// Close does nothing.
func (d *Disk) Close() error { return nil }

// Settle works only on Linux.
func (d *Disk) Settle() error { return ErrLinuxOnly }

// Free works only on Linux.
func (d *Disk) Free() (int64, error) { return 0, ErrLinuxOnly }

// Kind returns "unknown".
func (d *Disk) Kind() string { return "unknown" }

func allocated(info fs.FileInfo) int64 { return info.Size() }
