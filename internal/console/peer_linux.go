package console

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

const checksPeer = true

// errPeer refuses a connection of another user.
var errPeer = errors.New("the connection is not of the console's own user")

// admit accepts only connections of the console's own user. The kernel's table of
// connections contains the other end of a loopback connection, with the uid of its
// creator.
func admit(c net.Conn) error {
	uid, err := peerUID(c)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return errPeer
	}
	return nil
}

func peerUID(c net.Conn) (int, error) {
	theirs, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return 0, err
	}
	ours, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return 0, err
	}
	// An IPv6 socket that connects to an IPv4 address is in the second table.
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		table, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if uid, ok := findUID(table, theirs, ours); ok {
			return uid, nil
		}
	}
	return 0, errors.New("the kernel does not know the other end of the connection")
}

// findUID searches for an established connection from one address to another. It ignores
// a connection that its program has closed, because older kernels say that root owns it.
func findUID(table []byte, from, to netip.AddrPort) (uid int, ok bool) {
	const established = "01"
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != established || f[9] == "0" {
			continue
		}
		if local, err := procAddress(f[1]); err != nil || local != normal(from) {
			continue
		}
		if remote, err := procAddress(f[2]); err != nil || remote != normal(to) {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}

func normal(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// procAddress reads an address in the form of the kernel: 32-bit words in the byte order
// of the machine, and the port.
func procAddress(text string) (netip.AddrPort, error) {
	address, port, found := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if !found || err != nil || (len(b) != 4 && len(b) != 16) {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip, _ := netip.AddrFromSlice(b)
	return normal(netip.AddrPortFrom(ip, uint16(n))), nil
}
