package receiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// isGRPC reports whether a request uses gRPC with messages in binary form.
func isGRPC(r *http.Request) bool {
	switch r.Header.Get("Content-Type") {
	case "application/grpc", "application/grpc+proto":
		return r.ProtoMajor == 2 && r.URL.Path == pathGRPC
	}
	return false
}

// message is a gRPC message in its encoded form.
type message struct{ bytes []byte }

// plain is a codec that does not change messages. It replaces the codec for messages in
// binary form.
type plain struct{}

// Name returns the name of the codec that plain replaces.
func (plain) Name() string { return "proto" }

// Marshal returns the message unchanged.
func (plain) Marshal(v any) ([]byte, error) { return v.(*message).bytes, nil }

// Unmarshal does nothing: the message that it gets is empty.
func (plain) Unmarshal([]byte, any) error { return nil }

type callKey struct{}

// newGRPC returns a handler that answers calls whose spans were taken already.
func newGRPC() http.Handler {
	return connect.NewUnaryHandler(pathGRPC, func(ctx context.Context, _ *connect.Request[message]) (*connect.Response[message], error) {
		c, ours := ctx.Value(callKey{}).(*call)
		if !ours {
			return nil, connect.NewError(connect.CodeInternal, errors.New("it did not arrive through the receiver"))
		}
		if c.err != nil {
			return nil, connect.NewError(codeOf(c.err), errors.New(c.message(c.err)))
		}
		return connect.NewResponse(&message{c.reply}), nil
	}, connect.WithCodec(plain{}), connect.WithReadMaxBytes(1))
}

// serveGRPC answers a call whose body was read. It replaces the body by an empty message.
func (c *call) serveGRPC() {
	r := c.r.WithContext(context.WithValue(c.r.Context(), callKey{}, c))
	r.Header.Del("Grpc-Encoding")
	r.Body = io.NopCloser(bytes.NewReader(make([]byte, 5)))
	r.ContentLength = 5
	c.receiver.grpc.ServeHTTP(c.w, r)
}

// codeOf returns the gRPC code of an error. Exporters send again after Unavailable.
func codeOf(err error) connect.Code {
	switch statusOf(err) {
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case http.StatusServiceUnavailable:
		return connect.CodeUnavailable
	case http.StatusRequestEntityTooLarge:
		return connect.CodeResourceExhausted
	case http.StatusUnsupportedMediaType:
		return connect.CodeUnimplemented
	}
	switch ckpt.CodeOf(err) {
	case ckpt.CodeInvalid:
		return connect.CodeInvalidArgument
	case ckpt.CodeDenied:
		return connect.CodePermissionDenied
	}
	return connect.CodeInternal
}

const pathGRPC = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
