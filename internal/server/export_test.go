package server

import infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"

// ScheduledCalls returns the number of timed calls that are still to be made.
func (s *Server) ScheduledCalls() int { return s.timers.Len() }

// OwnWrites returns the hosts that the server remembers to have written.
func (s *Server) OwnWrites() []*infrav1.ElementalHost { return s.hosts.OwnWrites() }

// Idle reports whether no timed call is due and no status is being written.
func (s *Server) Idle() bool {
	// A status that has been written may have scheduled a call.
	return s.timers.Waits() && s.statusQueue.Unfinished() == 0 && s.timers.Waits()
}
