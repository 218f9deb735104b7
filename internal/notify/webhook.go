package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

// secretPrefix begins a key that is written as base64.
const secretPrefix = "whsec_"

// leastSecret is the least number of bytes of a key.
const leastSecret = 24

// readSecret reads the key of a webhook. Each attempt reads it, so that the key can be
// changed while the daemon runs.
func readSecret(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("secret_file cannot be read: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if coded, is := bytes.CutPrefix(secret, []byte(secretPrefix)); is {
		if secret, err = base64.StdEncoding.DecodeString(string(coded)); err != nil {
			return nil, errors.New("secret_file does not have base64 after " + secretPrefix)
		}
	}
	if len(secret) < leastSecret {
		return nil, fmt.Errorf("the key in secret_file is %d bytes long: it must have %d", len(secret), leastSecret)
	}
	return secret, nil
}

// Sign returns the signature of a message in the form of the header.
func Sign(secret []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// goneError means that the receiver does not want the message any more.
type goneError struct{ status int }

func (e *goneError) Error() string { return fmt.Sprintf("the server answers %d", e.status) }

// laterError means that the receiver asks for a pause.
type laterError struct {
	status int
	after  time.Duration
}

func (e *laterError) Error() string { return fmt.Sprintf("the server answers %d", e.status) }

// send makes one attempt.
func (w *Webhook) send(ctx context.Context, id string, body []byte, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.Timeout))
	defer cancel()
	secret, err := readSecret(w.SecretFile)
	if err != nil {
		return err
	}
	client, err := w.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("url cannot be used")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ckptsidecar")
	r.Header.Set(headerID, id)
	r.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(headerSignature, Sign(secret, id, now, body))
	resp, err := client.Do(r)
	if err != nil {
		return w.plain(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return nil
	case status == http.StatusGone:
		return &goneError{status}
	default:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &laterError{status, time.Duration(max(0, min(seconds, int(longestPause/time.Second)))) * time.Second}
	}
}

// client returns a client for one attempt: attempts are few, and nothing of one must stay
// for the next. It follows no redirection: a message goes only to the address in the
// settings.
func (w *Webhook) client() (*http.Client, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	u, err := url.Parse(w.URL)
	if err != nil {
		return nil, errors.New("url cannot be used")
	}
	if u.Scheme == "https" {
		transport.Proxy = http.ProxyFromEnvironment
	} else {
		transport.DialContext = dialLoopback
	}
	if w.CAFile != "" {
		pem, err := os.ReadFile(w.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file cannot be read: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file has no certificate")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// dialLoopback connects only to this machine, whatever the name resolves to.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()); !isLoopback(host) {
		_ = conn.Close()
		return nil, errors.New("http is allowed only on this machine")
	}
	return conn, nil
}

// plain returns an error without the address, because the path of the address may be a
// secret.
func (w *Webhook) plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer within %s", w.host(), w.Timeout)
	}
	return fmt.Errorf("%s cannot be reached: %s", w.host(), strings.ReplaceAll(err.Error(), w.URL, "…"))
}

func (w *Webhook) host() string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return "the server"
	}
	return u.Host
}

const longestPause = 2 * time.Hour
