package fleet

import (
	"strings"
	"testing"
)

const machineSID, domainSID = "S-1-5-21-1-2-3", "S-1-5-21-7-8-9"

var someIdentities = &Identities{DB: "d1", Machine: machineSID,
	Named:  map[string]string{"uid:1000": "acme/build", "uid:200007": "acme/special", domainSID + "-500": "acme/root"},
	Realms: map[string]string{"acme": "uid:200000-299999", "all": "uid:0-999", "rest": "uid:60000-70000"}}

// TestPrincipals resolves each kind of identity, and checks the way from the
// principal back to the user.
func TestPrincipals(t *testing.T) {
	for local, want := range map[string]string{
		"uid:1000":           "acme/build",          // an entry
		"uid:200007":         "acme/special",        // an entry takes precedence over a range
		"uid:200123":         "acme/uid:200123",     // a range
		"uid:200000":         "acme/uid:200000",     // the ends of the range
		"uid:299999":         "acme/uid:299999",     //
		"uid:300000":         "host/d1/uid:300000",  // after the range
		"uid:1001":           "host/d1/uid:1001",    // nothing matches
		"uid:0":              "host/d1/uid:0",       // a range never maps it
		"uid:65534":          "host/d1/uid:65534",   // the same
		"uid:0200123":        "host/d1/uid:0200123", // the text differs, so it is not the same uid
		domainSID + "-1105":  domainSID + "-1105",   // of a domain
		domainSID + "-500":   "acme/root",           // an entry takes precedence
		machineSID + "-1001": "host/d1/" + machineSID + "-1001",
		"S-1-5-18":           "host/d1/S-1-5-18",
	} {
		got := someIdentities.Principal(local)
		if got != want {
			t.Errorf("%s is %s, want %s", local, got, want)
		}
		if back := someIdentities.Local(got); back != local {
			t.Errorf("%s is %q here, want %s", got, back, local)
		}
	}
	unknown := &Identities{DB: "d1"} // the machine's own SID is not known
	if got := unknown.Principal(domainSID + "-1105"); got != "host/d1/"+domainSID+"-1105" {
		t.Errorf("a SID that may be of the machine is %s", got)
	}
	for _, p := range []string{"", "acme/uid:5", "host/d2/uid:1001", "host/d1/uid:1000", "acme/uid:200007", "other/uid:200123", machineSID + "-1001", "all/uid:0", "uid:1001"} {
		if got := someIdentities.Local(p); got != "" {
			t.Errorf("%q is %s here, and nobody has it", p, got)
		}
	}
}

// TestHere: what belonged to a user of another host goes to the local user who
// is the same principal.
func TestHere(t *testing.T) {
	for _, c := range []struct{ principal, owner, want string }{
		{"acme/build", "uid:7", "uid:1000"},                  // the same principal under another uid
		{"acme/uid:200123", "uid:200123", "uid:200123"},      // from a directory
		{"host/d2/uid:1500", "uid:1500", "uid:1500"},         // nobody here has that mapping
		{"host/d2/uid:1000", "uid:1000", "host/d2/uid:1000"}, // that uid is another person here
		{"other/bob", "uid:1000", "other/bob"},               // the same
		{"", "uid:1000", "uid:1000"},                         // shipped by a former version
	} {
		if got := someIdentities.Here(c.principal, c.owner); got != c.want {
			t.Errorf("what is %s's, %s there, becomes %s, want %s", c.principal, c.owner, got, c.want)
		}
	}
}

func TestSamePrincipal(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"acme/build", "acme/build", true}, {domainSID + "-5", domainSID + "-5", true}, {"acme/build", "acme/bob", false}, {"", "", false},
		{"host/d1/uid:1000", "host/d1/uid:1000", false}, {"host/d1/uid:1000", "host/d2/uid:1000", false},
	} {
		if got := SamePrincipal(c.a, c.b); got != c.want {
			t.Errorf("%q and %q are the same: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestCheckIdentities: each mistake is refused with an error that names it.
func TestCheckIdentities(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		named, realms m
		want          string
	}{
		{someIdentities.Named, someIdentities.Realms, ""},
		{nil, nil, ""},
		{m{"uid:200001": "acme/uid:200002", "uid:200002": "acme/b"}, m{"acme": "uid:200000-299999"}, ""},
		{m{"uid:1": "acme/a", "uid:2": "acme/a"}, nil, "both acme/a"},
		{m{"uid:1": "acme/uid:200001"}, m{"acme": "uid:200000-299999"}, "the same principal"},
		{m{"uid:1": "acme"}, nil, "REALM/NAME"},
		{m{"uid:1": "acme/"}, nil, "REALM/NAME"},
		{m{"uid:1": "a/b/c"}, nil, "REALM/NAME"},
		{m{"uid:1": "host/d1"}, nil, "for identities of one host"},
		{m{"uid:1": "S-1-5/a"}, nil, "is no realm"},
		{m{"uid:01": "acme/a"}, nil, "is no identity"},
		{m{"bob": "acme/a"}, nil, "is no identity"},
		{nil, m{"a": "uid:1-10", "b": "uid:10-20"}, "overlap"},
		{nil, m{"a": "uid:10-1"}, "is no range"},
		{nil, m{"a": "1-10"}, "is no range"},
		{nil, m{"a": "uid:1"}, "is no range"},
		{nil, m{"host": "uid:1-2"}, "for identities of one host"},
		{nil, m{"*": "uid:1-2"}, "is no realm"},
	} {
		err := CheckIdentities(c.named, c.realms)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v and %v answer %v, want %q", c.named, c.realms, err, c.want)
		}
	}
}
