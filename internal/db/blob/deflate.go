package blob

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

var deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(nil, 1)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Deflate answers zlib, or data itself where zlib is not smaller.
func Deflate(data []byte) []byte {
	w := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(w)
	var out bytes.Buffer
	out.Grow(len(data)/3 + 64)
	w.Reset(&out)
	if _, err := w.Write(data); err != nil || w.Close() != nil || out.Len() >= len(data) {
		return data
	}
	return out.Bytes()
}

// mostInflated is how many bytes zlib can make of one, and a little more.
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
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF { // the end, which its checksum comes with
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
