package host

// failing is the last failure of work that is repeated, so that each failure is logged once.
type failing string

// news notes how the work ended, and reports whether that is a failure that differs from the
// last one.
func (f *failing) news(err error) bool {
	was := *f
	*f = ""
	if err != nil {
		*f = failing(err.Error())
	}
	return *f != "" && *f != was
}
