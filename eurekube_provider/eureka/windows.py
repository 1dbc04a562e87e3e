"""Durations of everything that is done with Eureka, in seconds, each with the reason for its value.

Most follow from the defaults of a Eureka server in Netflix/eureka: AcceptorExecutor gathers what one server
tells another for at most 0.5 s and tries again after 1 s, PeerEurekaNode gives up after 30 s;
ResponseCacheImpl makes each list again every 30 s; AbstractInstanceRegistry keeps changes for 180 s; Lease
lets a renewed instance live for twice its lease of 90 s, one that was never renewed for once.
"""

from __future__ import annotations

# What one server tells another.

STATUS_REPLICATION_SECONDS = 0.6
"""Seconds until servers have told each other of a status: they take half a second, in no certain order."""

RENEWAL_REPLICATION_SECONDS = 1.5
"""Seconds until servers have forwarded a renewal: within half a second, and once more a second later."""

WRITE_REPLICATION_SECONDS = 2.0
"""Seconds until a write at one server is at the others, even where it had to be sent to them twice."""

MANUAL_STATUS_REPLICATION_SECONDS = 3.0
"""Seconds after which a status that a person set is at all servers: one that only some servers have then is
undone, so that the time is longer than :data:`WRITE_REPLICATION_SECONDS`.
"""

SENT_STATUS_ARRIVAL_SECONDS = 10.0
"""Seconds within which a status that this process sent reaches every server; an OUT_OF_SERVICE that shows
within them is taken for this process's, since a person is hardly as quick.
"""

REPLICATION_GIVEN_UP_SECONDS = 35.0
"""Seconds after which servers no longer try to tell each other of a write; they try for 30 s."""

STATUS_MAY_RETURN_SECONDS = 60.0
"""Seconds for which a status that was set or cleared may come back: a server tells its peers of it for 30
s, and their last check is 35 s after the last write.
"""

REGISTRATION_SPREAD_SECONDS = 120.0
"""Seconds that a registration may take to reach all servers: one that was frozen gets it with a renewal."""

CUT_OFF_AFTER_SECONDS = 20.0
"""Seconds for which a server must lack an instance before the instance is copied to it: at a restarted
server, clients register their instances again with their next renewal.
"""

SUCCESSORS_SPREAD_SECONDS = 90.0
"""Seconds after its successors' registration for which the last instance of an application stays at a server
that was not seen to hold a successor: by then the operator that renews the successors has registered them at
a server that the other servers do not reach.
"""

SUCCESSORS_GRACE_SECONDS = 2.0
"""Seconds to wait for a server that is asked for the successors of its last instance and gets them (up to
four requests), after another server has answered.
"""

# What lists and deltas show.

LIST_LAG_SECONDS = 35.0
"""Seconds for which a list may be wrong about a write: a server makes its list again every 30 s, unless its
``response-cache-update-interval-ms`` says otherwise, and hears of others' writes in seconds.
"""

LONGEST_LIST_LAG_SECONDS = 90.0
"""Seconds after which every list shows a write: 30 s of cache on each of two servers, and replication.

A server is seldom frozen for longer than some seconds: what it did not answer has come by then, too.
"""

OLDER_THAN_ANY_REGISTRATION_SECONDS = 10 * 365 * 86_400.0
"""Seconds that are more than the age of any registration, which begins when its application starts."""

FULL_LIST_INTERVAL_SECONDS = 300.0
"""Seconds for which deltas are followed without reading the list, and for which no delta is read after a
doubt: the counts in deltas do not reveal that one instance came and another left.
"""

LONGEST_DELTA_GAP_SECONDS = 120.0
"""The most seconds between two deltas: a server keeps changes for 180 s, and an answer may be 30 s old, by
``retention-time-in-m-s-in-delta-queue`` and ``response-cache-update-interval-ms``.
"""

DOUBT_UNCHANGED_DELTA_AFTER_SECONDS = 60.0
"""Seconds after which an unchanged delta is compared with the list: two rounds of the server's cache."""

LIST_PARSE_DELAY_SECONDS = 0.2
"""Seconds for which a list that is read for safety's sake waits to be parsed, while others act on the
delta: parsing it takes the interpreter longer than everything else after a reading.
"""

FREQUENT_READ_INTERVAL_SECONDS, FREQUENT_READS_AFTER_CHANGE_SECONDS = 5.0, 60.0
"""Seconds between two readings after a change of what mirrors follow, and for which they go on so."""

READING_STUCK_AFTER_SECONDS = 600.0
"""Seconds after which a reading counts as stuck: doubts of a large registry are settled one by one."""

# How long a server is waited for.

CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS = 2.0, 5.0
"""Seconds that a server may take to accept a connection, and to answer, by default."""

LARGEST_ANSWER_BYTES = 128 * 2**20
"""The largest answer that is read, in bytes, also once it is decompressed, by default: a list of some
150,000 instances. The largest publicly known registry has 90,000.
"""

LARGEST_SINGLE_ANSWER_BYTES = 4 * 2**20
"""The largest answer, in bytes, that is neither a list nor a batch: one instance, or a server's status."""

SHORT_TIMEOUT_SECONDS = 0.5
"""Seconds for which a server is waited for if another one can be asked; an answer takes a millisecond."""

SLOW_SERVER_SECONDS = 1.0
"""Seconds after which a server counts as slow, and is asked last: a read takes a millisecond."""

AVOID_SERVER_SECONDS = 10.0
"""Seconds for which a server that did not answer is asked last, and information that only it has is not
asked for again; and seconds of silence after which no question waits for its time-out any more.
"""

SAME_SILENCE_SECONDS = 120.0
"""Seconds within which two silences of a server count as one, if it answered nothing in between.

Longer than between two steps of a roll-out, which ask servers; shorter than callers need to leave one.
"""

SERVER_GRACE_SECONDS = 0.5
"""Seconds to wait for the other servers once one has answered; longer if that answer took longer."""

BULK_READ_GRACE_SECONDS = 3.0
"""Seconds to wait for the other servers where many instances are read, and later answers are left out."""

SHORT_SERVER_GRACE_SECONDS = 0.1
"""Seconds for which servers are waited for if an answer takes milliseconds, and a late one is asked for
again: servers that did not answer lately, and, at a take-over, all of them.
"""

SILENCE_SECONDS, LONG_SILENCE_SECONDS = 1.0, 3.0
"""Seconds without any server's answer after which custom resources that wait for an answer report it, and
after which all that register there do: a server takes some time to render a large registry.
"""

READ_AFTER_FIRST_REGISTRATION_SECONDS = 0.05
"""Seconds after a lone instance's first registration until each of several servers is asked who holds its id:
reads at all of them at once would hold up those who ask for the instance.
"""

READ_BACK_DELAY_SECONDS = 0.2
"""Seconds until a write that a server does not show yet is read again; longer with each attempt."""

# Since when a server runs, and which servers there are.

RESTART_CHECK_INTERVAL_SECONDS = 2.0
"""Seconds between two questions to each server for how long it has run, and until a failed reading is
repeated: a server that lost its memory need not wait.
"""

OUTAGE_RETRY_SECONDS = 0.5
"""Seconds until a reading, or the question for a restart, is repeated while no server answers.

Instances that a restarting server forgot are not called until they are registered, and a refused connection
costs nothing. A server that refuses the password has to hash it for each of a reading's two requests.
"""

MEMORY_LOSS_SECONDS = 120.0
"""Seconds after a server's restart for which a missing registration is explained by its lost memory:
instances register again with their next renewal, or the one after it.
"""

RECENT_START_SECONDS = 600.0
"""Seconds of running (or, if longer, the time since the last reading) up to which a server with a new start
time counts as just restarted. If it has run longer, a load balancer had not sent a request to it before.
"""

CLOCK_ROUNDING_SECONDS = 2.0
"""Seconds by which a server's time may be off, since it has whole seconds only."""

SERVER_WARM_UP_SECONDS = 330.0
"""Seconds of running after which a server has heard from every living instance.

Instances renew each half minute, and register again where they are not known. While a server hangs, as one
whose machine is lost, a Java client doubles that time up to ten times half a minute. Source:
TimedSupervisorTask of Netflix/eureka.
"""

TOPOLOGY_CACHE_SECONDS = 60.0
"""Seconds for which two findings are believed: a server's peers, and that it is alone at its URL."""

# Renewals.

RENEWAL_INTERVAL_SECONDS = 25.0
"""The most seconds between two renewals of one instance: a server expects two a minute."""

RENEWAL_TICK_SECONDS = 0.5
"""Seconds between two checks for due renewals."""

RENEWAL_TICK_STUCK_AFTER_SECONDS = 120.0
"""Seconds after which a tick counts as stuck: it may have to ask every server for its peers."""

FIRST_RENEWAL_SECONDS = 5.0
"""Seconds within which what was found at the start is first renewed: it may be about to lapse."""

LONGEST_RENEWAL_WAIT_SECONDS = 2.0
"""Seconds for which a due renewal waits for a thread before another thread is started."""

PLAIN_RENEWALS_AFTER_SECONDS = 60.0
"""Seconds after which a server that batches have not reached gets plain renewals through its peers, which
may still reach it; batches are not forwarded. Its Eureka leases live for 180 s by default.
"""

GATHER_MISSING_SECONDS = 2.0
"""The most seconds for which instances that a server lacks are gathered: it may never be idle."""

REFUSAL_LOG_WINDOW_SECONDS = 600.0
"""Seconds in which only a few instances with refused renewals are logged by name."""

REMEMBER_RENEWAL_SECONDS = 600.0
"""The longest time for which a server's answer to a renewal is remembered, whatever the lease."""

LAPSES_SOON_SECONDS = 60.0
"""Seconds before its lapse from which on a stack's registration is read at once."""

# After a removal or a status of ours.

REMOVAL_CHECKS_AFTER_SECONDS = (WRITE_REPLICATION_SECONDS, REPLICATION_GIVEN_UP_SECONDS)
"""Seconds after a removal at which servers are checked for the instance: once writes under way have
arrived, and once no server tells others of any more.
"""

BALANCED_URL_REMOVAL_CHECKS_AFTER_SECONDS = (*REMOVAL_CHECKS_AFTER_SECONDS, 50.0, 65.0, 95.0)
"""Seconds after a removal at which servers are checked if several answer at one URL: nobody notices there
that one was frozen, and is back with the removed instance.
"""

REMOVAL_CHECK_TICK_SECONDS = 1.0
"""Seconds between two searches for due checks of servers after removals."""

GROUP_REMOVAL_CHECKS_SECONDS = 0.2
"""Seconds within which due checks of removals are made together."""

STATUS_POLL_SECONDS, LONGEST_STATUS_POLL_SECONDS = 0.5, 30.0
"""Seconds between two reads of a cleared status, and the most seconds for which it is read."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.25, 5.0
"""Seconds until a server that did not answer is asked again in the background: at first, and at most."""

# Proofs that an instance left, and what the servers' front pages show.

KEEP_DEPARTURE_PROOF_SECONDS = 600.0
"""Seconds for which the proof that an instance left is kept, and the time of the last question about it."""

DEPARTURE_QUESTIONS_WINDOW_SECONDS = 15.0
"""Seconds over which the number of questions about unlisted instances is counted and limited."""

DEFERRED_QUESTION_TURN_SECONDS = 60.0
"""Seconds for which an instance whose question had to wait keeps its turn: it may never be asked again."""

FRONT_PAGE_INTERVAL_SECONDS, KEEP_FRONT_PAGE_SECONDS = 30.0, 120.0
"""Seconds between two readings of front pages while somebody looks, and for which figures are shown."""
