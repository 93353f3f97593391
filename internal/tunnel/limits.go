package tunnel

import (
	"net/http"
	"time"
)

const (
	// setupTimeout bounds the time from the upgrade to the first answer over HTTP/2.
	setupTimeout = 10 * time.Second
	// connectTimeout bounds the agent's connection to a target.
	connectTimeout = 3 * time.Second
	// dialTimeout bounds a dial for an agent that answers questions but no dials.
	dialTimeout = 15 * time.Second
	// linger is how long data that was written before Close may take to its target.
	linger = 5 * time.Second
	// closeTimeout bounds the TLS alert at the end of a connection.
	closeTimeout = 250 * time.Millisecond

	// maxStreams bounds the streams of a tunnel.
	maxStreams = 128
	// streamWindow is how much a receiver buffers for a stream whose reader is slow.
	streamWindow = 512 << 10
	// connectionWindow is enough for maxStreams stalled streams, so that they never
	// block another one.
	connectionWindow = maxStreams * streamWindow
	// frameSize is HTTP/2's smallest limit for frames. The sender allocates a buffer of
	// the receiver's limit for each stream.
	frameSize = 16 << 10
	// maxHeaderBytes bounds the headers of a request and of its answer.
	maxHeaderBytes = 4 << 10
	// noHeaderTable switches the compression of headers off, which would cost memory for
	// each tunnel and save a few bytes for each dial.
	noHeaderTable = 1
	// maxTargetLength is that of a DNS label.
	maxTargetLength = 63
)

// protocols are HTTP/2 only. It is "unencrypted" as the connection has its own TLS.
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// settings are those of both sides. The agent permits one more stream than the manager
// dials: the manager's questions need one.
func settings() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams + 1,
		MaxReadFrameSize:              frameSize,
		MaxReceiveBufferPerStream:     streamWindow,
		MaxReceiveBufferPerConnection: connectionWindow,
		MaxEncoderHeaderTableSize:     noHeaderTable,
	}
}

// isTarget reports whether a string can be the name of a target. Addresses, which have
// dots or colons, can't.
func isTarget(name string) bool {
	if name == "" || len(name) > maxTargetLength {
		return false
	}
	for _, c := range []byte(name) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
