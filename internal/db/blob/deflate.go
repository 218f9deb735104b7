package blob

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// deflaters makes a pool of zlib writers of a level, which must be valid.
func deflaters(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := zlib.NewWriterLevel(nil, level)
		if err != nil {
			panic(err)
		}
		return w
	}}
}

var (
	fast  = deflaters(1)
	small = deflaters(9)
)

// Deflate returns data as zlib, or data itself if zlib is not smaller.
func Deflate(data []byte) []byte { return deflate(fast, data) }

// DeflateSmall is Deflate for work that nobody waits for: it takes longer, and its result is
// smaller.
func DeflateSmall(data []byte) []byte { return deflate(small, data) }

func deflate(writers *sync.Pool, data []byte) []byte {
	w := writers.Get().(*zlib.Writer)
	defer writers.Put(w)
	var out bytes.Buffer
	out.Grow(len(data)/3 + 64)
	w.Reset(&out)
	if _, err := w.Write(data); err != nil || w.Close() != nil || out.Len() >= len(data) {
		return data
	}
	return out.Bytes()
}

// mostInflated is how many bytes zlib can make of one byte, rounded up.
const mostInflated = 1100

var inflaters sync.Pool // of io.ReadCloser that are zlib.Resetter

// Inflate undoes Deflate, as sqlar_uncompress does.
func Inflate(data []byte, size int64) ([]byte, error) {
	if int64(len(data)) == size {
		return data, nil
	}
	if size < 0 || size > int64(len(data))*mostInflated {
		return nil, fmt.Errorf("the segment cannot have %d bytes", size)
	}
	r, err := inflater(data)
	if err != nil {
		return nil, err
	}
	defer inflaters.Put(r)
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF { // read the end, where the checksum is
		return nil, fmt.Errorf("the segment does not end after %d bytes: %w", size, err)
	}
	return out, nil
}

func inflater(data []byte) (io.ReadCloser, error) {
	if r, ok := inflaters.Get().(io.ReadCloser); ok {
		return r, r.(zlib.Resetter).Reset(bytes.NewReader(data), nil)
	}
	return zlib.NewReader(bytes.NewReader(data))
}
