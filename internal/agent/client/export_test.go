package client

// ClockDistrusted reports whether the host's clock turned out to be so far
// ahead that it is left out of account.
func (c *Client) ClockDistrusted() bool {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.distrusted == theHost
}
