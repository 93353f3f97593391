package client

// ClockDistrusted reports whether the client ignores the host's clock because it is
// too far ahead.
func (c *Client) ClockDistrusted() bool {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.distrusted == hostClock
}
