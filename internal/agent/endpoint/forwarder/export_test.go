package forwarder

// Processes returns the processes that were started for the state directory.
func (m *Manager) Processes() []int { return m.processes() }
