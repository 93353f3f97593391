package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

func (o Options) transport(tlsConfig *tls.Config) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            o.dial(),
		TLSClientConfig:        tlsConfig.Clone(),
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			// A table for header compression would cost the manager some KiB per host, for a
			// few requests an hour.
			MaxEncoderHeaderTableSize: noHeaderTable,
		},
		// An idle connection may lead to a server that was replaced.
		IdleConnTimeout: idleTimeout,
	}
}

// upgradeTransport is for requests that take over their connection, which HTTP/2 cannot.
func (o Options) upgradeTransport(tlsConfig *tls.Config) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	tlsConfig = tlsConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            o.dial(),
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
		// Nothing follows an answer without an upgrade.
		DisableKeepAlives: true,
	}
}

func (o Options) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial == nil {
		return tcp.Dialer(connectTimeout).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return o.Dial(ctx, network, address)
	}
}
