package server

// Scheduled is how many calls are still to be made.
func (s *Server) Scheduled() int {
	s.schedule.mu.Lock()
	defer s.schedule.mu.Unlock()
	return len(s.schedule.entries)
}

// Routes lists the routes, for comparison with the document.
func Routes() []string {
	var out []string
	for _, r := range (&Server{}).routeTable() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}
