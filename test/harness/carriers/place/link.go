package place

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

const (
	// largest is larger than a packet of the devices, whose MTU is 1500.
	largest = 2048
	// queued is how many packets may be on their way in one direction: more than any connection of a measurement has. A
	// packet beyond is lost.
	queued = 1 << 14
)

// Link has two Places with a slow link between them. It needs root, and the kernel's TUN devices.
type Link struct {
	// Manager and Host are its ends.
	Manager, Host Place

	ends [2]*namespace
	// closed ends the relay.
	closed  chan struct{}
	running sync.WaitGroup
}

// NewLink makes a link. A packet takes half of roundTrip, and is lost with the probability loss. The same seed loses the
// same packets.
func NewLink(roundTrip time.Duration, loss float64, seed uint64) (*Link, error) {
	l := &Link{closed: make(chan struct{})}
	const here, there = "10.99.0.1", "10.99.0.2"
	var err error
	if l.ends[0], err = newNamespace(here, there); err != nil {
		return nil, err
	}
	if l.ends[1], err = newNamespace(there, here); err != nil {
		l.ends[0].close()
		return nil, err
	}
	l.Manager, l.Host = l.ends[0], l.ends[1]
	for i, from := range l.ends {
		d := &direction{
			from: from.packets, to: l.ends[1-i].packets, delay: roundTrip / 2, loss: loss, closed: l.closed,
			random: rand.New(rand.NewPCG(seed, uint64(i))), onTheWay: make(chan packet, queued),
		}
		l.running.Go(d.receive)
		l.running.Go(d.send)
	}
	return l, nil
}

// Close ends the link. Nobody may use its ends any more.
func (l *Link) Close() {
	close(l.closed)
	for _, end := range l.ends {
		end.close()
	}
	l.running.Wait()
}

// direction relays packets in one direction.
type direction struct {
	from, to *os.File
	delay    time.Duration
	loss     float64
	random   *rand.Rand
	onTheWay chan packet
	closed   <-chan struct{}
}

type packet struct {
	due  time.Time
	data []byte
}

func (d *direction) receive() {
	buffer := make([]byte, largest)
	for {
		n, err := d.from.Read(buffer)
		if err != nil {
			return // it is closed
		}
		if d.random.Float64() < d.loss {
			continue
		}
		select {
		case d.onTheWay <- packet{time.Now().Add(d.delay), append([]byte(nil), buffer[:n]...)}:
		default:
		}
	}
}

func (d *direction) send() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.closed:
			return
		case p := <-d.onTheWay:
			timer.Reset(time.Until(p.due))
			select {
			case <-d.closed:
				return
			case <-timer.C:
			}
			_, _ = d.to.Write(p.data) // a packet that is not taken is lost
		}
	}
}
