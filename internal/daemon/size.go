package daemon

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Size is a number of bytes, written like "64MiB", "2GB" or "512".
type Size int64

// units are the factors of sizes, the longest suffix first, so that "B" does not match
// before "MiB".
var units = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1}, {"", 1},
}

// ParseSize reads a size.
func ParseSize(s string) (Size, error) {
	bad := fmt.Errorf("%q is not a size: write for example 512, 64KiB, 10MB or 2GiB", s)
	text := strings.TrimSpace(s)
	for _, u := range units {
		number, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.factor {
			return 0, bad
		}
		return Size(n * u.factor), nil
	}
	return 0, bad
}

// String returns the shortest exact form.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; s != 0 && int64(s)%u.factor == 0 {
			return strconv.FormatInt(int64(s)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// UnmarshalText reads the output of String. If the text is invalid, s stays unchanged.
func (s *Size) UnmarshalText(b []byte) error {
	size, err := ParseSize(string(b))
	if err == nil {
		*s = size
	}
	return err
}

// FileMode is the permissions of a file, written in octal: "0660".
type FileMode fs.FileMode

// String returns the octal form.
func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// UnmarshalText reads octal digits.
func (m *FileMode) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 8, 32)
	if err != nil {
		return fmt.Errorf("%q is not a file mode: write octal digits, for example 0660", b)
	}
	*m = FileMode(n)
	return nil
}
