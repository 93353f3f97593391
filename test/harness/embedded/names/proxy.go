package names

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lookupTimeout bounds a request until it is answered.
const lookupTimeout = 10 * time.Second

// Options are the settings of a Proxy. All are required.
type Options struct {
	// Services reads Services from the API server, without a cache.
	Services client.Reader
	// Domain is the domain of the cluster's DNS.
	Domain string
	// Processes has the address of the process behind a Service, by the Service's full name and
	// its port: NAME.NAMESPACE.svc.DOMAIN:PORT.
	Processes map[string]string
}

// Proxy is a running proxy. It is safe for concurrent use.
type Proxy struct {
	o      Options
	server *http.Server
	at     string

	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	open    map[net.Conn]struct{}
}

// Start starts a Proxy, which must be closed.
func Start(o Options) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{o: o, at: listener.Addr().String(), open: map[net.Conn]struct{}{}}
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: lookupTimeout, ErrorLog: log.New(io.Discard, "", 0),
	}
	p.running.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// URL is the value of HTTPS_PROXY.
func (p *Proxy) URL() string { return "http://" + p.at }

// Close closes all connections. When it returns, nothing listens or copies any more.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// serve answers a request, and copies until both directions have ended.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
		return
	}
	to, err := p.connect(r.Context(), r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = to.Close()
		return
	}
	if !p.keep(from, to) {
		return
	}
	defer p.running.Done()
	defer p.drop(from, to)
	if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var copies sync.WaitGroup
	copies.Go(func() { transfer(to, buffered) })
	transfer(from, to)
	copies.Wait()
}

// transfer copies in one direction and passes on its end.
func transfer(to net.Conn, from io.Reader) {
	_, err := io.Copy(to, from)
	if writer, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = writer.CloseWrite()
		return
	}
	_ = to.Close()
}

// keep registers connections for Close. After Close it closes them and returns false.
func (p *Proxy) keep(connections ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range connections {
		if p.closed {
			_ = conn.Close()
			continue
		}
		p.open[conn] = struct{}{}
	}
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

func (p *Proxy) drop(connections ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range connections {
		_ = conn.Close()
		delete(p.open, conn)
	}
}

// connect connects to the process that a name and a port lead to.
func (p *Proxy) connect(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if name, err = p.resolve(ctx, name); err != nil {
		return nil, err
	}
	process, ok := p.o.Processes[net.JoinHostPort(name, port)]
	if !ok {
		return nil, fmt.Errorf("connecting to %s: nothing is behind port %s of %s", address, port, name)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", process)
}

// errUnknown is the answer of DNS to a name that it does not have.
var errUnknown = errors.New("no such host")

// resolve follows a Service of type ExternalName.
func (p *Proxy) resolve(ctx context.Context, name string) (string, error) {
	short, inDomain := strings.CutSuffix(name, ".svc."+p.o.Domain)
	service, namespace, isService := strings.Cut(short, ".")
	if !inDomain || !isService {
		return "", fmt.Errorf("looking up %s: %w", name, errUnknown)
	}
	found := &corev1.Service{}
	if err := p.o.Services.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, found); err != nil {
		return "", fmt.Errorf("looking up %s: %w: %w", name, errUnknown, err)
	}
	if found.Spec.Type == corev1.ServiceTypeExternalName {
		return found.Spec.ExternalName, nil
	}
	return name, nil
}
