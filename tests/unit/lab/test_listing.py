"""Reading of a Eureka server's front page."""

from __future__ import annotations

from lab.listing import parse_instance_keys

PAGE = """
      <h1>Instances currently registered with Eureka</h1>
      <table id='instances' class="table table-striped table-hover">
              <tr>
                <td><b>RATING</b></td>
                <td>
                    <b>n/a</b> (5)
                </td>
                <td>
                    <b></b> (5)
                </td>
                <td>
                      <font color=red size=+1><b>
                    <b>DOWN</b> (2) -
                      </b></font>
                        q,w e&amp;r&lt;t&gt;y
                      ,
                        <a href="http://192.0.2.1/?a=1&amp;b=2" target="_blank">linked</a>

                    <b>UP</b> (1) -
                        a-0.x:rating:8080
                </td>
              </tr>
              <tr>
                <td><b>OTHER</b></td>
                <td>
                    <b>UP</b> (1) -
                        <a href="http://x/" target="_blank">a-0.x:rating:8080</a>
                </td>
              </tr>
      </table>
      <table id='generalInfo'>
        <tr>
          <td>uptime</td><td>
            00:01
          </td>
        </tr>
      </table>
"""


def test_the_front_page_names_all_instances() -> None:
    """All instances of the page are read with their applications, in any status, linked or not."""
    assert list(parse_instance_keys(PAGE)) == [
        ("RATING", "q,w e&r<t>y"),
        ("RATING", "linked"),
        ("RATING", "a-0.x:rating:8080"),
        ("OTHER", "a-0.x:rating:8080"),
    ]
    assert list(parse_instance_keys("<h1>Log in</h1>")) == []
