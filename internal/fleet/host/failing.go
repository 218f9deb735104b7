package host

// failing is the last failure of work that is tried again and again, so that each one is
// logged once.
type failing string

// news notes how the work went, and says whether that is a failure that was not the last one.
func (f *failing) news(err error) bool {
	was := *f
	*f = ""
	if err != nil {
		*f = failing(err.Error())
	}
	return *f != "" && *f != was
}
