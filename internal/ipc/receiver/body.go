package receiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"

	ckpt "github.com/ckptsidecar/ckptsidecar"
	"github.com/ckptsidecar/ckptsidecar/internal/otlp"
)

// read reads the body into memory of the owner's share. The caller must release the
// memory.
func (c *call) read(ctx context.Context) (body []byte, release func(), err error) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(readTime)) // the deadline of this stream only
	length, packed, err := c.announced()
	if err != nil {
		return nil, nil, err
	}
	sent, give, err := c.receive(ctx, length)
	if err != nil {
		return nil, nil, err
	}
	defer give()
	if packed {
		size, err := inflatedSize(sent)
		if err != nil {
			return nil, nil, err
		}
		return c.weighed(ctx, sent, size)
	}
	return c.weighed(ctx, sent, -1)
}

// announced returns the length that the request announces, -1 if none, and whether the
// body is compressed.
func (c *call) announced() (length int64, packed bool, err error) {
	if !isGRPC(c.r) {
		switch c.r.Header.Get("Content-Encoding") {
		case "", "identity":
		case "gzip":
			packed = true
		default:
			return 0, false, &refusal{http.StatusUnsupportedMediaType,
				ckpt.Errorf(ckpt.CodeInvalid, "the body has an unknown Content-Encoding: use gzip, or none")}
		}
		return c.r.ContentLength, packed, nil
	}
	var head [5]byte // whether the message is compressed, and its length
	if _, err := io.ReadFull(c.r.Body, head[:]); err != nil {
		return 0, false, readError(err)
	}
	packed = head[0]&1 == 1
	if packed && c.r.Header.Get("Grpc-Encoding") != "gzip" {
		return 0, false, &refusal{http.StatusUnsupportedMediaType,
			ckpt.Errorf(ckpt.CodeInvalid, "the message has an unknown compression: use gzip, or none")}
	}
	return int64(binary.BigEndian.Uint32(head[1:])), packed, nil
}

// receive reads the body as it was sent.
func (c *call) receive(ctx context.Context, length int64) (sent []byte, give func(), err error) {
	if length > otlp.MaxBody {
		return nil, nil, tooLarge()
	}
	room := length
	if length < 0 {
		room = otlp.MaxBody
	}
	if give, err = c.holdSent(ctx, room); err != nil {
		return nil, nil, err
	}
	if length >= 0 {
		sent = make([]byte, length)
		_, err = io.ReadFull(c.r.Body, sent)
	} else if sent, err = io.ReadAll(io.LimitReader(c.r.Body, otlp.MaxBody+1)); len(sent) > otlp.MaxBody {
		err = tooLarge()
	}
	if err != nil {
		give()
		return nil, nil, readError(err)
	}
	return sent, give, nil
}

// weighed waits until there is memory for the decoded body. size is the size of the body
// after it is inflated, -1 if it is not compressed. The call takes all memory at once:
// calls that hold some memory and wait for more could wait for each other.
func (c *call) weighed(ctx context.Context, sent []byte, size int64) (body []byte, release func(), err error) {
	weight := otlp.WeighAtMost(size)
	if size < 0 {
		if weight, err = otlp.Weigh(sent, c.form); err != nil {
			return nil, nil, err
		}
	}
	if release, err = c.hold(ctx, weight); err != nil || size < 0 {
		return sent, release, err
	}
	if body, err = inflate(sent, size); err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

// hold takes memory for a decoded body from the owner's share, and from the memory for
// all owners.
func (c *call) hold(ctx context.Context, n int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n = min(max(n, 1), ownerBytes) // the largest body has the whole share
	if c.owner.bytes.Acquire(ctx, n) != nil {
		return nil, busy("too many of your batches are being processed: try again")
	}
	if c.receiver.all.Acquire(ctx, n) != nil {
		c.owner.bytes.Release(n)
		return nil, busy("too many batches are being processed: try again")
	}
	return func() {
		c.receiver.all.Release(n)
		c.owner.bytes.Release(n)
	}, nil
}

// holdSent takes memory for a body as it was sent from the owner's share. It is always
// called before hold, never after.
func (c *call) holdSent(ctx context.Context, n int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.owner.sent.Acquire(ctx, max(n, 1)) != nil {
		return nil, busy("too many of your batches are being processed: try again")
	}
	return func() { c.owner.sent.Release(max(n, 1)) }, nil
}

// inflatedSize decompresses a body without keeping it, and returns its size.
func inflatedSize(sent []byte) (int64, error) {
	reader, err := gzip.NewReader(bytes.NewReader(sent))
	if err != nil {
		return 0, notPacked()
	}
	size, err := io.Copy(io.Discard, io.LimitReader(reader, otlp.MaxBody+1))
	switch {
	case size > otlp.MaxBody:
		return 0, tooLarge()
	case err != nil:
		return 0, notPacked()
	}
	return size, nil
}

func inflate(sent []byte, size int64) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(sent))
	if err != nil {
		return nil, notPacked()
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(reader, body); err != nil {
		return nil, notPacked()
	}
	return body, nil
}

func tooLarge() error {
	return ckpt.Errorf(ckpt.CodeTooLarge, "the body is larger than %d bytes: send fewer spans at once", otlp.MaxBody)
}

func notPacked() error {
	return ckpt.Errorf(ckpt.CodeInvalid, "the Content-Encoding is gzip, but the body is not gzip")
}

// readError returns the error for a body that did not arrive.
func readError(err error) error {
	var known *ckpt.Error
	if errors.As(err, &known) {
		return err
	}
	return ckpt.Errorf(ckpt.CodeInvalid, "the body is incomplete")
}
