package main

import (
	"os"
	"sync"
)

// rawLog is the best that a disk gives to many who append: whoever finds it
// free writes what all have brought, with one fdatasync.
type rawLog struct {
	file *os.File

	mu      sync.Mutex
	busy    bool
	waiting []byte
	turn    *turn // what those share that wait now
}

type turn struct {
	done chan struct{}
	err  error
}

func openRawLog(path string) (*rawLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	return &rawLog{file: f, turn: &turn{done: make(chan struct{})}}, err
}

func (l *rawLog) remove() {
	l.file.Close()
	os.Remove(l.file.Name())
}

// append gives back when the bytes are on the disk.
func (l *rawLog) append(b []byte) error {
	l.mu.Lock()
	l.waiting = append(l.waiting, b...)
	mine := l.turn
	if l.busy {
		l.mu.Unlock()
		<-mine.done
		return mine.err
	}
	l.busy = true
	for len(l.waiting) > 0 {
		l.write()
	}
	l.busy = false
	l.mu.Unlock()
	return mine.err
}

// write writes what waits; others may bring more meanwhile.
func (l *rawLog) write() {
	batch, now := l.waiting, l.turn
	l.waiting, l.turn = nil, &turn{done: make(chan struct{})}
	l.mu.Unlock()
	if _, now.err = l.file.Write(batch); now.err == nil {
		now.err = syncData(l.file)
	}
	close(now.done)
	l.mu.Lock()
}
