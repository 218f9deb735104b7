package measure

import (
	"os"
	"sync"

	"github.com/ckptsidecar/ckptsidecar/internal/osfile"
)

// rawLog is the best rate that a disk allows for many clients that write to one file. The
// client that finds the log free writes what all clients have brought, with one
// fdatasync. A log either grows, as files do that are appended to, or it has its full
// size from the beginning and is overwritten from the start when it is full. The second
// form saves the file system its own bookkeeping.
type rawLog struct {
	file *os.File
	room int64 // size of a log that is overwritten; 0 for a log that grows
	most int64 // size at which a log that grows starts again, so that a long measurement fills no disk
	at   int64

	mu      sync.Mutex
	busy    bool
	waiting []byte
	turn    *turn // shared by all clients that wait now
}

type turn struct {
	done chan struct{}
	err  error
}

// openRawLog opens a log with room bytes that exist already. If room is 0, the log grows
// up to most bytes and then starts again.
func openRawLog(path string, room, most int64) (*rawLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &rawLog{file: f, room: room, most: most, turn: &turn{done: make(chan struct{})}}
	if err := l.fill(); err != nil {
		l.remove()
		return nil, err
	}
	return l, nil
}

// fill writes the file once, so that its blocks are allocated.
func (l *rawLog) fill() error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < l.room; at += int64(len(zeros)) {
		if _, err := l.file.WriteAt(zeros[:min(int64(len(zeros)), l.room-at)], at); err != nil {
			return err
		}
	}
	return l.file.Sync()
}

func (l *rawLog) remove() {
	l.file.Close()
	os.Remove(l.file.Name())
}

// write returns when the bytes are on the disk.
func (l *rawLog) write(b []byte) error {
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
		l.flush()
	}
	l.busy = false
	l.mu.Unlock()
	return mine.err
}

// flush writes the waiting bytes. Other clients can add more in the meantime.
func (l *rawLog) flush() {
	batch, now := l.waiting, l.turn
	l.waiting, l.turn = nil, &turn{done: make(chan struct{})}
	l.mu.Unlock()
	if now.err = l.put(batch); now.err == nil {
		now.err = osfile.SyncData(l.file)
	}
	close(now.done)
	l.mu.Lock()
}

// put writes a batch at the end of the last one. Only one goroutine does so at a time.
func (l *rawLog) put(batch []byte) error {
	size := int64(len(batch))
	switch {
	case l.room > 0 && l.at+size > l.room:
		l.at = 0
	case l.room == 0 && l.at+size > l.most && l.at > 0:
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		l.at = 0
	}
	_, err := l.file.WriteAt(batch, l.at)
	l.at += size
	return err
}
