package passthrough

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const recordHeader = 5

// scripted is a connection on which chunks arrive, and then its end.
type scripted struct {
	net.Conn
	chunks  [][]byte
	written int
}

func (s *scripted) Read(p []byte) (int, error) {
	for len(s.chunks) > 0 && len(s.chunks[0]) == 0 {
		s.chunks = s.chunks[1:]
	}
	if len(s.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.chunks[0])
	s.chunks[0] = s.chunks[0][n:]
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error) {
	s.written += len(p)
	return len(p), nil
}

// capture is a connection that keeps what is written and has ended otherwise.
type capture struct {
	net.Conn
	bytes.Buffer
}

func (c *capture) Read([]byte) (int, error)    { return 0, io.EOF }
func (c *capture) Write(p []byte) (int, error) { return c.Buffer.Write(p) }
func (c *capture) Close() error                { return nil }

// clientHello returns the record that a client begins with. The server name may be empty.
func clientHello(serverName string, protocols ...string) []byte {
	to := &capture{}
	config := &tls.Config{ServerName: serverName, InsecureSkipVerify: true, NextProtos: protocols}
	_ = tls.Client(to, config).HandshakeContext(context.Background())
	return to.Bytes()
}

// longHello returns a ClientHello of more than so many bytes, in records that are not too
// long for TLS.
func longHello(serverName string, more int) []byte {
	var protocols []string
	for range more/201 + 1 {
		protocols = append(protocols, strings.Repeat("p", 200))
	}
	return fragment(clientHello(serverName, protocols...), 8<<10)
}

// fragment splits the payload of the records into records of at most so many bytes.
func fragment(records []byte, size int) []byte {
	var payload, out []byte
	for rest := records; len(rest) > 0; {
		end := recordHeader + int(binary.BigEndian.Uint16(rest[3:]))
		payload = append(payload, rest[recordHeader:end]...)
		rest = rest[end:]
	}
	for part := range slices.Chunk(payload, size) {
		out = append(append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
	}
	return out
}

func TestReadHello(t *testing.T) {
	hello := clientHello("api.example.com")
	twoRecords := fragment(hello, len(hello)/2)
	early := slices.Concat(hello, []byte("what follows"))
	for name, test := range map[string]struct {
		chunks [][]byte
		want   []byte
	}{
		"whole":               {[][]byte{hello}, hello},
		"single bytes":        {slices.Collect(slices.Chunk(hello, 1)), hello},
		"two records":         {[][]byte{twoRecords}, twoRecords},
		"two records, pieces": {slices.Collect(slices.Chunk(twoRecords, 7)), twoRecords},
		"records of a byte":   {[][]byte{fragment(hello, 1)}, fragment(hello, 1)},
		"with more":           {[][]byte{early}, early},
		"14 KiB":              {slices.Collect(slices.Chunk(longHello("api.example.com", 13<<10), 1000)), longHello("api.example.com", 13<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if name == "14 KiB" {
				// Another ClientHello has other random bytes.
				test.want = slices.Concat(test.chunks...)
			}
			from := &scripted{chunks: test.chunks}
			serverName, read, err := readHello(t.Context(), from)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(serverName).To(Equal("api.example.com"))
			g.Expect(read).To(Equal(test.want))
			g.Expect(from.written).To(BeZero())
		})
	}
}

// badHellos are what callers send that is never routed, by what it is.
func badHellos() map[string]struct {
	send []byte
	want outcome
} {
	hello := clientHello("api.example.com")
	otherType := bytes.Clone(hello)
	otherType[recordHeader] = 2 // a ServerHello
	broken := bytes.Clone(hello)
	broken[recordHeader+4+2+32+1+32+1]++ // length of the cipher suites, which must be even
	return map[string]struct {
		send []byte
		want outcome
	}{
		"no server name":       {clientHello(""), noServerName},
		"HTTP":                 {[]byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"), notTLS},
		"SSH":                  {[]byte("SSH-2.0-OpenSSH_9.9\r\n"), notTLS},
		"zeros":                {make([]byte, 1000), notTLS},
		"SSL 2":                {append([]byte{0x80, 0x2e, 0x01, 0x03, 0x01}, make([]byte, 44)...), notTLS},
		"another message":      {otherType, notTLS},
		"another record":       {[]byte{23, 3, 3, 0, 4, 1, 2, 3, 4}, notTLS},
		"odd cipher suites":    {broken, notTLS},
		"name ends with a dot": {bytes.Replace(hello, []byte("api.example.com"), []byte("api.example.co."), 1), notTLS},
		"alerts only":          {bytes.Repeat([]byte{21, 3, 1, 0, 2, 1, 90}, 100), notTLS},
		"empty records":        {bytes.Repeat([]byte{22, 3, 1, 0, 0}, 100), notTLS},
		"record too large":     {[]byte{22, 3, 1, 0xff, 0xff, 1, 0, 0, 0}, notTLS},
		"more than 16 KiB":     {longHello("api.example.com", 20<<10), tooLong},
	}
}

func TestReadHello_Invalid(t *testing.T) {
	for name, test := range badHellos() {
		for size, how := range map[int]string{1: "single bytes", 1 << 20: "whole"} {
			t.Run(name+", "+how, func(t *testing.T) {
				g := NewWithT(t)
				from := &scripted{chunks: slices.Collect(slices.Chunk(bytes.Clone(test.send), size))}
				_, _, err := readHello(t.Context(), from)
				g.Expect(err).To(HaveOccurred())
				g.Expect(outcomeOf(err)).To(Equal(test.want), err.Error())
				g.Expect(from.written).To(BeZero())
			})
		}
	}
}

// The caller may end the connection after each byte of its ClientHello.
func TestReadHello_Incomplete(t *testing.T) {
	g := NewWithT(t)
	hello := fragment(clientHello("api.example.com"), 100)
	for n := range hello {
		_, _, err := readHello(t.Context(), &scripted{chunks: [][]byte{hello[:n]}})
		g.Expect(outcomeOf(err)).To(Equal(incomplete))
	}
}

// Whatever arrives, in whatever pieces: what is recorded is the beginning of it and
// bounded, nothing is answered, and the server name depends on these bytes only.
func FuzzClientHello(f *testing.F) {
	hello := clientHello("api.example.com")
	f.Add(hello, uint16(1))
	f.Add(hello, uint16(1000))
	f.Add(fragment(hello, 100), uint16(7))
	f.Add(clientHello(""), uint16(100))
	f.Add(longHello("api.example.com", 17<<10), uint16(5000))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(3))
	f.Fuzz(func(t *testing.T, sent []byte, size uint16) {
		from := &scripted{chunks: slices.Collect(slices.Chunk(bytes.Clone(sent), int(size)+1))}
		name, read, err := readHello(t.Context(), from)
		if from.written > 0 {
			t.Fatalf("%d bytes were answered", from.written)
		}
		if err != nil {
			if why := outcomeOf(err); !slices.Contains([]outcome{notTLS, tooLong, incomplete, noServerName}, why) {
				t.Fatalf("outcome %s: %v", why, err)
			}
			return
		}
		if name == "" || len(read) > maxHello || !bytes.HasPrefix(sent, read) {
			t.Fatalf("name %q, %d bytes of %d", name, len(read), len(sent))
		}
		again, replayed, err := readHello(t.Context(), &scripted{chunks: [][]byte{bytes.Clone(read)}})
		if err != nil || again != name || !bytes.HasPrefix(read, replayed) {
			t.Fatalf("the recorded bytes have the name %q, not %q: %v", again, name, err)
		}
	})
}
