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

// Pause is for Linux.
func (p *Process) Pause() error { return ErrLinuxOnly }

// Resume is for Linux.
func (p *Process) Resume() error { return ErrLinuxOnly }

// CPU is for Linux.
func (p *Process) CPU() (time.Duration, error) { return 0, ErrLinuxOnly }

type member struct{ pid int }

func killAll([]member)           {}
func tree(int) ([]member, error) { return nil, ErrLinuxOnly }

// SyncData is for Linux.
func SyncData(*os.File) error { return ErrLinuxOnly }

// Lock is for Linux.
func Lock(string) (*os.File, error) { return nil, ErrLinuxOnly }

// Disk is the file system that is measured.
type Disk struct{}

// OpenDisk is for Linux.
func OpenDisk(string) (*Disk, error) { return nil, ErrLinuxOnly }

// Close is for Linux.
func (d *Disk) Close() error { return nil }

// Settle is for Linux.
func (d *Disk) Settle() error { return ErrLinuxOnly }

// Free is for Linux.
func (d *Disk) Free() (int64, error) { return 0, ErrLinuxOnly }

// Kind is for Linux.
func (d *Disk) Kind() string { return "unknown" }

func allocated(info fs.FileInfo) int64 { return info.Size() }
