package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// HostRealm is the realm of identities that are valid on one host only. The settings
// must not map an identity to it.
const HostRealm = "host"

// nobody is the uid that the kernel shows for each user that it cannot name.
const nobody = 65534

// Identities say which principal of the fleet each local identity is. Named maps
// identities to principals. Realms maps a realm to a range of uids, such as
// "uid:200000-299999". CheckIdentities must have accepted both.
type Identities struct {
	DB      string            // the id of the host's database
	Named   map[string]string // from fleet.principals
	Realms  map[string]string // from fleet.realms
	Machine string            // on Windows the SID of the machine itself, "" if it is not known
}

// uidRange is a range of uids, both ends included.
type uidRange struct{ first, last int64 }

// Principal returns who a local identity is in the whole fleet. An identity that the
// settings do not map is a principal of its host only.
func (ids *Identities) Principal(local string) string {
	if p, is := ids.Named[local]; is {
		return p
	}
	if uid, is := uidOf(local); is && uid != 0 && uid != nobody {
		for realm, text := range ids.Realms {
			if r, err := readRange(text); err == nil && r.first <= uid && uid <= r.last {
				return realm + "/" + local
			}
		}
	}
	if ids.ofDomain(local) {
		return local
	}
	return HostRealm + "/" + ids.DB + "/" + local
}

// Local returns the identity of this host that is a principal, "" if there is none.
func (ids *Identities) Local(principal string) string {
	for local, p := range ids.Named {
		if p == principal {
			return local
		}
	}
	local := principal
	if own, is := strings.CutPrefix(principal, HostRealm+"/"+ids.DB+"/"); is {
		local = own
	} else if _, name, is := strings.Cut(principal, "/"); is {
		local = name
	}
	if ids.Principal(local) != principal {
		return ""
	}
	return local
}

// Here returns which user of this host gets what belongs to a principal and belonged to
// owner on another host. It is the user here who is that principal. If there is none,
// it is the user with the same name. But if the settings map that user to another
// principal, it is the principal itself: then only administrators see it.
func (ids *Identities) Here(principal, owner string) string {
	if local := ids.Local(principal); local != "" {
		return local
	}
	if principal != "" && !strings.HasPrefix(ids.Principal(owner), HostRealm+"/") {
		return principal
	}
	return owner
}

// Name sets the principals of the owners of the agents and runs in a batch.
func (ids *Identities) Name(c *Changes) {
	for i := range c.Agents {
		c.Agents[i].Principal = ids.Principal(c.Agents[i].Owner)
	}
	for i := range c.Erased {
		c.Erased[i].Principal = ids.Principal(c.Erased[i].Owner)
	}
	for i := range c.Runs {
		c.Runs[i].Principal = ids.Principal(c.Runs[i].Owner)
	}
}

// SamePrincipal reports whether two principals are the same person in the whole fleet.
// A principal of a single host is nobody elsewhere, and "" is nobody, so both return
// false.
func SamePrincipal(a, b string) bool {
	return a != "" && a == b && !strings.HasPrefix(a, HostRealm+"/")
}

// ofDomain reports whether a SID belongs to a domain and not to this machine. Such a
// SID is the same on each machine of the domain.
func (ids *Identities) ofDomain(local string) bool {
	account := strings.HasPrefix(local, "S-1-5-21-") && strings.Count(local, "-") == 7
	return account && ids.Machine != "" && local[:strings.LastIndexByte(local, '-')] != ids.Machine
}

func uidOf(local string) (int64, bool) {
	text, is := strings.CutPrefix(local, "uid:")
	if !is {
		return 0, false
	}
	uid, err := strconv.ParseUint(text, 10, 32)
	return int64(uid), err == nil && strconv.FormatUint(uid, 10) == text
}

func readRange(text string) (r uidRange, err error) {
	from, to, is := strings.Cut(strings.TrimPrefix(text, "uid:"), "-")
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if !is || !strings.HasPrefix(text, "uid:") || err1 != nil || err2 != nil || first > last {
		return r, fmt.Errorf("%q is no range of uids: write uid:200000-299999", text)
	}
	return uidRange{int64(first), int64(last)}, nil
}

// CheckIdentities says what is wrong with the entries of fleet.principals and
// fleet.realms: two local identities must not be one principal.
func CheckIdentities(named, realms map[string]string) error {
	if err := checkRanges(realms); err != nil {
		return err
	}
	ids := &Identities{Named: named, Realms: realms}
	seen := map[string]string{}
	for _, local := range slices.Sorted(maps.Keys(named)) {
		p := named[local]
		if err := checkEntry(local, p); err != nil {
			return err
		}
		if other, is := seen[p]; is {
			return fmt.Errorf("%s and %s are both %s: one principal is one identity of a host", other, local, p)
		}
		seen[p] = local
		_, name, _ := strings.Cut(p, "/")
		if _, mapped := named[name]; !mapped && ids.Principal(name) == p {
			return fmt.Errorf("%s is %s, and the range of its realm makes %s the same principal: choose another name", local, p, name)
		}
	}
	return nil
}

func checkEntry(local, principal string) error {
	if _, isUID := uidOf(local); !isUID && !strings.HasPrefix(local, "S-1-") {
		return fmt.Errorf("%q is no identity: write uid:1000, or a SID", local)
	}
	realm, name, is := strings.Cut(principal, "/")
	if !is || name == "" || len(principal) > 256 || strings.ContainsAny(name, "/ \t\r\n") {
		return fmt.Errorf("%q is no principal: write REALM/NAME", principal)
	}
	return checkRealm(realm)
}

// checkRealm refuses a text that is not the name of a realm.
func checkRealm(realm string) error {
	if realm == "" || len(realm) > 64 ||
		strings.Trim(strings.ToLower(realm), "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || strings.HasPrefix(realm, "S-1-") {
		return fmt.Errorf("%q is no realm: use letters, digits, dots, hyphens and underscores", realm)
	}
	if realm == HostRealm {
		return fmt.Errorf("the realm %s is for identities of one host: choose another name", realm)
	}
	return nil
}

// checkRanges refuses ranges that overlap: one uid has one principal.
func checkRanges(realms map[string]string) error {
	type taken struct {
		uidRange
		realm string
	}
	var all []taken
	for _, realm := range slices.Sorted(maps.Keys(realms)) {
		if err := checkRealm(realm); err != nil {
			return err
		}
		r, err := readRange(realms[realm])
		if err != nil {
			return fmt.Errorf("realm %s: %w", realm, err)
		}
		for _, o := range all {
			if r.first <= o.last && o.first <= r.last {
				return fmt.Errorf("the ranges of the realms %s and %s overlap: one uid has one principal", o.realm, realm)
			}
		}
		all = append(all, taken{r, realm})
	}
	return nil
}
