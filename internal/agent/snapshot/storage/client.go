package storage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

const (
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// answerTimeout is how long the storage may take for its answer after the last byte.
	answerTimeout = 5 * time.Minute
	// expectTimeout is how long a request with a body waits until the storage wants the body. It is
	// sent then in any case.
	expectTimeout  = 10 * time.Second
	maxHeaderBytes = 32 << 10
	maxErrorBytes  = 8 << 10
	maxErrorText   = 200
)

// NewClient returns a client for one request, which trusts these CA certificates, PEM, or the
// system's. It shows the storage no certificate of the host, and honours the environment's
// proxies. A nil dial means the system's dialler.
func NewClient(dial func(ctx context.Context, network, address string) (net.Conn, error), trustBundle string) (*http.Client, error) {
	config, err := configOf(trustBundle)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = tcp.Dialer(connectTimeout).DialContext
	}
	return newClient(http.ProxyFromEnvironment, dial, config), nil
}

// NewRelayedClient is NewClient for a storage that is reached through the manager: dial returns a connection
// to it.
func NewRelayedClient(dial func(ctx context.Context) (net.Conn, error), trustBundle string) (*http.Client, error) {
	config, err := configOf(trustBundle)
	if err != nil {
		return nil, err
	}
	return newClient(nil, func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }, config), nil
}

func newClient(proxy func(*http.Request) (*url.URL, error), dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: proxy, DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout,
			ResponseHeaderTimeout: answerTimeout, ExpectContinueTimeout: expectTimeout, MaxResponseHeaderBytes: maxHeaderBytes, DisableKeepAlives: true,
		},
		// The permission is for one server, and a body can be read once.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// configOf returns the configuration of TLS that trusts these CA certificates, or the system's.
func configOf(trustBundle string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if trustBundle != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(trustBundle)) {
			return nil, errors.New("the manager has sent no CA certificate of the storage that can be read")
		}
	}
	return config, nil
}

// Reason returns what a refusal says. Storages answer with XML.
func Reason(response *http.Response) string {
	var said struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil || xml.Unmarshal(text, &said) != nil || said.Code == "" {
		return response.Status
	}
	why := said.Code + ": " + said.Message
	return fmt.Sprintf("%s (HTTP %d)", strings.ToValidUTF8(why[:min(len(why), maxErrorText)], ""), response.StatusCode)
}
