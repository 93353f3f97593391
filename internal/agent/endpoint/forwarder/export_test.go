package forwarder

// Processes returns the processes that were started for the state directory.
func (m *Manager) Processes() []int { return m.processes() }

// LockName is the file that a process locks.
const LockName = lockName
