package fleet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// A fleet has a block of addresses to itself, one of 127.1.0.0 to 127.254.255.255.
// 127.0.0.0/16 is where real programs listen.
const (
	blockBits = 18
	blockSize = 1 << (32 - blockBits)
	// MaxHosts is how many hosts a Fleet may have.
	MaxHosts = blockSize - 2
	// blockTries is how many blocks are looked at.
	blockTries = 64
)

// block is a block of addresses, reserved on this machine until it is closed.
type block struct {
	prefix netip.Prefix
	mark   net.Listener
}

// reserveBlock finds a block that nobody has. What marks it as taken is an abstract
// Unix socket: like loopback addresses it is one per network namespace, whoever's
// process has it, and it is gone when that process is.
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

// address is the host's that has a number, from 0.
func (b *block) address(number int) netip.Addr {
	base := b.prefix.Addr().As4()
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(base[:])+uint32(number)+1)
	return netip.AddrFrom4(address)
}

func (b *block) release() error { return b.mark.Close() }
