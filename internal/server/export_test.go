package server

// Routes lists the routes, for comparison with the document.
func Routes() []string {
	var out []string
	for _, r := range (&Server{}).routeTable() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}
