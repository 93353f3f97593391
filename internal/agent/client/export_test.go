package client

import (
	"net/http"
	"net/url"
)

// ClockDistrusted reports whether the client ignores the host's clock because it is
// too far ahead.
func (c *Client) ClockDistrusted() bool {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.distrusted == hostClock
}

// SetProxy replaces the proxy of the environment, which is read only once per process.
func (c *Client) SetProxy(proxy func(*http.Request) (*url.URL, error)) { c.upgrades.Proxy = proxy }
