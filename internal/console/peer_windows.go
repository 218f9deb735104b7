package console

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/windows"
)

const checksPeer = true

var (
	errPeer  = errors.New("the connection is not of the console's own user")
	tcpTable = windows.NewLazySystemDLL("iphlpapi.dll").NewProc("GetExtendedTcpTable")
)

// admit accepts only connections of the console's own user. The system's table of
// connections contains the other end of a loopback connection, with the process that made
// it.
func admit(c net.Conn) error {
	theirs, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	ours, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	pid, err := processOf(theirs, ours)
	if err != nil {
		return err
	}
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(process) }()
	var token windows.Token
	if err := windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token); err != nil {
		return err
	}
	defer func() { _ = token.Close() }()
	them, err := token.GetTokenUser()
	if err != nil {
		return err
	}
	us, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return err
	}
	if !them.User.Sid.Equals(us.User.Sid) {
		return errPeer
	}
	return nil
}

// processOf returns the process at the other end of an established connection.
func processOf(from, to netip.AddrPort) (uint32, error) {
	const ownersOfConnections = 4 // TCP_TABLE_OWNER_PID_CONNECTIONS
	family, row := uint32(windows.AF_INET), 24
	if from.Addr().Is6() && !from.Addr().Is4In6() {
		family, row = windows.AF_INET6, 56
	}
	size := uint32(64 << 10)
	for range 4 {
		table := make([]byte, size)
		code, _, _ := tcpTable.Call(uintptr(unsafe.Pointer(&table[0])), uintptr(unsafe.Pointer(&size)), 0,
			uintptr(family), ownersOfConnections, 0)
		switch windows.Errno(code) {
		case windows.ERROR_INSUFFICIENT_BUFFER:
			continue
		case 0:
			return findProcess(table, row, from, to)
		default:
			return 0, windows.Errno(code)
		}
	}
	return 0, errors.New("the table of connections cannot be read")
}

// findProcess searches the table: a count, and rows of 24 bytes for IPv4 or 56 for IPv6.
func findProcess(table []byte, size int, from, to netip.AddrPort) (uint32, error) {
	const established = 5 // MIB_TCP_STATE_ESTAB
	word := func(row []byte, at int) uint32 { return binary.LittleEndian.Uint32(row[at:]) }
	port := func(row []byte, at int) uint16 { return binary.BigEndian.Uint16(row[at:]) }
	count := int(binary.LittleEndian.Uint32(table))
	for i := range count {
		at := 4 + i*size
		if at+size > len(table) {
			break
		}
		row := table[at : at+size]
		var local, remote netip.AddrPort
		var state, pid uint32
		if size == 24 { // state, local address and port, remote address and port, process
			l, _ := netip.AddrFromSlice(row[4:8])
			r, _ := netip.AddrFromSlice(row[12:16])
			local, remote = netip.AddrPortFrom(l, port(row, 8)), netip.AddrPortFrom(r, port(row, 16))
			state, pid = word(row, 0), word(row, 20)
		} else { // local address, scope and port, remote address, scope and port, state, process
			l, _ := netip.AddrFromSlice(row[0:16])
			r, _ := netip.AddrFromSlice(row[24:40])
			local, remote = netip.AddrPortFrom(l, port(row, 20)), netip.AddrPortFrom(r, port(row, 44))
			state, pid = word(row, 48), word(row, 52)
		}
		if state == established && local == plain(from) && remote == plain(to) {
			return pid, nil
		}
	}
	return 0, errors.New("the system does not know the other end of the connection")
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
