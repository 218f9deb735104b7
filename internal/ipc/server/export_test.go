package server

import "slices"

// Route is one call of the API, for checking the API's description.
type Route struct {
	Method, Path string
	Query        []string // parameters besides owner
}

// Routes lists the whole API.
func Routes() []Route {
	list := make([]Route, len(routes))
	for i, r := range routes {
		list[i] = Route{r.method, r.path, slices.Clone(r.params)}
	}
	return list
}
