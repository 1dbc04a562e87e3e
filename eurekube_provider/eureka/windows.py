"""Durations of everything that is done with Eureka, in seconds, each with the reason for its value.

Most follow from what a Eureka server does by default, as Netflix/eureka has it: AcceptorExecutor gathers what
one server tells another for at most 0.5 s and tries again after 1 s, PeerEurekaNode gives up after 30 s;
ResponseCacheImpl makes each list again every 30 s; AbstractInstanceRegistry keeps changes for 180 s; Lease
lets a renewed instance live for twice its lease of 90 s, one that was never renewed for once.
"""

from __future__ import annotations

# What one server tells another.

STATUS_REPLICATED = 0.6
"""Servers tell each other of a status within half a second, and in no certain order."""

RENEWAL_REPLICATED = 1.5
"""Servers forward a renewal to each other within half a second, and once more a second later."""

REPLICATED = 2.0
"""A write at one server stands at the others by then, even where it had to be sent to them twice."""

ANOTHERS_STATUS = 3.0
"""A status that stands at some servers only for as long was not set by a person just now. Longer than
:data:`REPLICATED`, since it is undone."""

OUR_STATUS = 10.0
"""A status of ours that went to every server is there by then; a person is hardly as quick."""

REPLICATION_ENDS = 35.0
"""Servers have given up by then to tell each other of a write, which they try for 30 s."""

STATUS_SENT_AGAIN = 60.0
"""A server tells its peers of a status for 30 s; the last look at them is 35 s after the last write."""

ON_ITS_WAY = 120.0
"""So long a registration may take to reach all servers: one that was frozen hears of it with a renewal."""

LACKING = 20.0
"""Time in which holders register their instances again at a restarted server, by their next renewal. An
instance that it lacks for longer is registered there by nobody else."""

SUCCESSORS_SENT = 90.0
"""For as long after their registration the last instance of an application stays at a server that has not
been seen to hold what replaces it: who renews has informed a server by then that no other one tells."""

SUCCESSORS_GRACE = 2.0
"""How long a server is waited for that is asked for what replaces its last instance, and sent it: up
to four requests, where another one answers without any."""

# What lists and deltas show.

LIST_LAG = 35.0
"""A list may be wrong for as long about what was written: a server makes it again every 30 s, unless its
``response-cache-update-interval-ms`` says otherwise, and hears of others' writes within some seconds."""

UNLISTED = 90.0
"""Every list shows a write by then: 30 s of cache on each of two servers, and replication. A server is seldom
frozen for longer than some seconds, so that a write that it did not answer has come by then, too."""

LIST_INTERVAL = 300.0
"""How long deltas are followed, or left alone after a doubt, without another list: their counts do not tell
one instance that came from one that went."""

DELTA_GAP = 120.0
"""Between two deltas at most: a server keeps changes for 180 s, and an answer may be 30 s old, unless its
``retention-time-in-m-s-in-delta-queue`` and ``response-cache-update-interval-ms`` say otherwise."""

DELTA_STILL = 60.0
"""A delta that stays the same for longer is compared with the list: two rounds of the server's cache."""

DEFERRED_LIST = 0.2
"""For as long a list that is read for safety's sake is left alone, while others do what the delta asks for:
to understand it takes the interpreter longer than everything else that follows from a reading."""

FOLLOWED_INTERVAL, FOLLOWED = 5.0, 60.0
"""Where somebody follows all that is listed: how often it is read after a change, and for how long."""

LONGEST_READING = 600.0
"""Reading a large registry, and settling many doubts one by one, takes its time; longer is stuck."""

# How long a server is waited for.

CONNECT_TIMEOUT, READ_TIMEOUT = 2.0, 5.0
"""How long a server may take to accept a connection, and to answer, by default."""

LARGEST_ANSWER = 128 * 2**20
"""The largest answer that is read, in bytes, also once it is decompressed, by default: a list of some 150,000
instances. The largest registry that is known in public has 90,000."""

LARGEST_PLAIN_ANSWER = 4 * 2**20
"""Likewise of an answer that is no list and no batch: one instance, or what a server says of itself."""

SHORT_TIMEOUT = 0.5
"""How long one server is waited for where another one can be asked, which takes a millisecond."""

SLOW = 1.0
"""A server that took longer than this over a single instance, which takes a millisecond, is asked last."""

AVOIDED = 10.0
"""How long a server that did not answer is asked last, and what only it can tell is not asked for again."""

ONE_SILENCE = 120.0
"""A server that was silent twice within this time, and answered nothing between, was silent throughout.
Longer than the time between two steps of a roll-out, in which servers are asked; shorter than callers need to
leave it."""

GRACE = 0.5
"""How long the rest of the servers are waited for once one has answered, or as long again as that took."""

READING_GRACE = 3.0
"""How long they are waited for by who asks for many instances, and believes what those say that answer."""

SHORT_GRACE = 0.1
"""How long they are waited for where an answer takes milliseconds, and a late one is asked for again: those
that did not answer lately, and all of them by who takes over."""

SILENT, LONG_SILENCE = 1.0, 3.0
"""So long no server may answer before those who wait for it are informed; and before all who register there
are:
rendering a large registry takes its time."""

READ_AGAIN = 0.2
"""Until a write that a server does not show yet is read again; twice as long the next time, and so on."""

# Since when a server runs, and which servers there are.

RESTART_CHECK = 2.0
"""How often who renews asks each server since when it runs, and after how long a reading that failed is tried
again: a server that lost its memory need not wait."""

AWAY_CHECK = 0.5
"""After how long a reading is tried again while no server answers: whatever one forgot that starts again is
not called until it is registered, and a connection that is refused costs nothing. One that refuses our
password costs a server a hash of it, for each of the two requests of a reading."""

MEMORY_LOST = 120.0
"""How long after a server's restart a missing registration is put down to its lost memory: instances register
again with their next renewal, or the one after it."""

STARTED_LATELY = 600.0
"""A server that has run for longer than this, and since before the last reading, was not restarted just now:
a load balancer has only now sent us there."""

CLOCK_ROUNDING = 2.0
"""A server tells the time in whole seconds."""

SERVER_SETTLED = 330.0
"""A server that has run for longer has heard from all that live: instances renew each half minute, and
register again where they are not known. While a server hangs, as one whose machine is lost, a Java client
doubles that time up to ten times half a minute. Source: TimedSupervisorTask of Netflix/eureka."""

TOPOLOGY = 60.0
"""How long it is believed which servers a server forwards to, and that it is alone at its URL."""

# Renewals.

RENEWAL_INTERVAL = 25.0
"""Between two renewals of one instance at most: a server counts on two a minute."""

RENEWAL_TICK = 0.5
"""Between two looks at what is due."""

LONGEST_RENEWAL_TICK = 120.0
"""A tick may have to ask every server what it is; one that takes longer is stuck."""

FIRST_RENEWAL = 5.0
"""An instance that was found at start may be about to lapse: nobody knows when it was renewed last."""

RENEWAL_WAITS = 2.0
"""A renewal that is due waits no longer for a thread before there is another one."""

PLAIN_RENEWALS_AFTER = 60.0
"""A server that batches have not reached for as long gets its renewals from its peers, which may still reach
it: plain ones, since no batch is forwarded. Its Eureka leases live for 180 s by default."""

MISSING_GATHERED = 2.0
"""So long what a server lacks is gathered while more is asked for, and no longer: it may never be idle."""

REFUSALS_NAMED = 600.0
"""In this time a few instances are named whose renewals are refused, and no more."""

RENEWAL_REMEMBERED = 600.0
"""The longest time for which a server's answer to a renewal is remembered, whatever the lease."""

LAPSES_SOON = 60.0
"""A registration of a stack that may lapse so soon is read at once."""

# After a removal or a status of ours.

SWEEP = (REPLICATED, REPLICATION_ENDS)
"""When what was removed is looked for: once what was under way has arrived, and once no server tells others
of the rest any more."""

SWEEP_BEHIND_ONE_URL = (*SWEEP, 50.0, 65.0, 95.0)
"""When it is looked for where several servers answer at one URL: nobody notices there that one of them was
frozen, and is back with what was removed meanwhile."""

SWEEP_TICK = 1.0
"""Between two looks at what is to be looked for."""

CHECKED_TOGETHER = 0.2
"""Removals of which a check is due within so long are checked together."""

STATUS_POLL, LONGEST_STATUS_POLL = 0.5, 30.0
"""How often a status that was cleared is read again, and for how long at most."""

FIRST_RETRY, RETRY = 0.25, 5.0
"""After how long a server that did not answer is asked again in the background: at first, and at most."""

# Proofs that an instance left, and what the servers' front pages show.

PROOF_KEPT = 600.0
"""For as long a proof is kept that nobody has asked for yet, and the time of the last question."""

PROOFS_COUNTED = 15.0
"""How many instances are asked for is counted over this time."""

PROOF_TURN = 60.0
"""For as long a turn is kept for what must wait, and may not be asked for again."""

FRONT_PAGE, FRONT_PAGE_KEPT = 30.0, 120.0
"""How often front pages are read while somebody looks, and how long what they showed is shown."""
