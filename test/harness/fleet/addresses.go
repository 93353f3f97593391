package fleet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Each fleet has a block of addresses of its own between 127.1.0.0 and 127.254.255.255.
// Real programs listen in 127.0.0.0/16.
const (
	blockBits = 18
	blockSize = 1 << (32 - blockBits)
	// MaxHosts is the maximum number of hosts in a Fleet.
	MaxHosts = blockSize - 2
	// blockTries is how many blocks are tried.
	blockTries = 64
)

// block is a block of addresses, reserved on this machine until it is closed.
type block struct {
	prefix netip.Prefix
	mark   net.Listener
}

// reserveBlock reserves a free block with an abstract Unix socket. Like loopback
// addresses, such a socket belongs to the network namespace, and the kernel closes it
// when the process ends.
func reserveBlock() (*block, error) {
	var failure error
	for range blockTries {
		base := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 0})
		prefix := netip.PrefixFrom(base, blockBits).Masked()
		mark, err := markBlock(prefix)
		if err == nil {
			return &block{prefix: prefix, mark: mark}, nil
		}
		failure = err
	}
	return nil, fmt.Errorf("reserving addresses of 127.0.0.0/8 for hosts: all %d blocks that were tried are taken: %w", blockTries, failure)
}

func markBlock(prefix netip.Prefix) (net.Listener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@elemental-fleet-" + prefix.String()})
}

// address returns the address of the host with a number, from 0.
func (b *block) address(number int) netip.Addr {
	base := b.prefix.Addr().As4()
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(base[:])+uint32(number)+1)
	return netip.AddrFrom4(address)
}

func (b *block) release() error { return b.mark.Close() }
